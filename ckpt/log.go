// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"log/slog"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLog writes to a descriptor: the launcher's stderr, since the program may close or redirect its own. If it is
// negative, nothing is logged.
func NewLog(level string, stderr int) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, err
	}
	if stderr < 0 {
		return zap.NewNop(), nil
	}
	enc := zap.NewDevelopmentEncoderConfig()
	enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	sink := zapcore.Lock(zapcore.AddSync(os.NewFile(uintptr(stderr), "stderr")))
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), sink, l)).Named("ckptrun"), nil
}

// Structured is the job's log for packages that write to the standard library's: they do not know this one.
func Structured(log *zap.Logger) *slog.Logger { return structured(log) }

func structured(log *zap.Logger) *slog.Logger { return slog.New(zapHandler{log}) }

type zapHandler struct{ log *zap.Logger }

func (h zapHandler) Enabled(_ context.Context, level slog.Level) bool {
	return h.log.Core().Enabled(zapLevel(level))
}

func (h zapHandler) Handle(_ context.Context, r slog.Record) error {
	fields := make([]zap.Field, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		fields = append(fields, field(a))
		return true
	})
	h.log.Log(zapLevel(r.Level), r.Message, fields...)
	return nil
}

func (h zapHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := make([]zap.Field, len(attrs))
	for i, a := range attrs {
		fields[i] = field(a)
	}
	return zapHandler{h.log.With(fields...)}
}

func (h zapHandler) WithGroup(name string) slog.Handler {
	return zapHandler{h.log.With(zap.Namespace(name))}
}

func field(a slog.Attr) zap.Field { return zap.Any(a.Key, a.Value.Resolve().Any()) }

func zapLevel(level slog.Level) zapcore.Level {
	switch {
	case level >= slog.LevelError:
		return zapcore.ErrorLevel
	case level >= slog.LevelWarn:
		return zapcore.WarnLevel
	case level >= slog.LevelInfo:
		return zapcore.InfoLevel
	}
	return zapcore.DebugLevel
}
