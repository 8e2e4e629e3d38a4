// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Store is a place, as it is reached from here. It may be used by several goroutines.
type Store struct {
	place Place
	core  *minio.Core
	stall time.Duration
	tries int
	part  int64 // bytes of a part of an object; larger for very large ones
}

// Open makes a store. Nothing is asked of it yet.
func Open(p Place, o Options) (*Store, error) {
	return open(p, o, os.Getenv)
}

func open(p Place, o Options, getenv func(string) string) (*Store, error) {
	fail := func(err error) (*Store, error) { return nil, fmt.Errorf("object store %s: %w", p, err) }
	o = o.complete(getenv)
	host, secure, err := splitEndpoint(o.Endpoint, o.Plain)
	if err != nil {
		return fail(err)
	}
	creds := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}})
	if v, err := creds.GetWithContext(&credentials.CredContext{Client: http.DefaultClient}); err != nil || v.AccessKeyID == "" {
		return fail(errors.New("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY on all nodes, or AWS_SHARED_CREDENTIALS_FILE (and AWS_PROFILE)"))
	}
	opts := &minio.Options{
		Creds: creds, Secure: secure, Region: getenv("AWS_REGION"), MaxRetries: 1,
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: min(o.Stall, 15*time.Second), KeepAlive: 15 * time.Second}).DialContext,
			// A store's answer is also bounded by Stall, which includes these.
			TLSHandshakeTimeout: min(o.Stall, 15*time.Second),
			MaxIdleConnsPerHost: 2 * parallel, IdleConnTimeout: 30 * time.Second,
			DisableCompression: true,
		},
	}
	if opts.Region == "" {
		opts.Region = getenv("AWS_DEFAULT_REGION")
	}
	if host != amazon {
		opts.BucketLookup = minio.BucketLookupPath
		if opts.Region == "" {
			opts.Region = "us-east-1" // what servers that know no regions expect
		}
	}
	core, err := minio.NewCore(host, opts)
	if err != nil {
		return fail(err)
	}
	core.SetAppInfo("libckpt", "1")
	return &Store{place: p, core: core, stall: o.Stall, tries: o.Tries, part: partBytes}, nil
}

// Place is where it is.
func (s *Store) Place() Place { return s.place }

func (s *Store) String() string { return s.place.String() }

// key is the name of a file of an epoch in the bucket.
func (s *Store) key(epoch int, file string) string { return s.folder(epoch) + file }

func (s *Store) folder(epoch int) string { return s.root() + fmt.Sprintf("epoch-%06d/", epoch) }

func (s *Store) root() string {
	if s.place.Prefix == "" {
		return ""
	}
	return s.place.Prefix + "/"
}

// URL names a file of an epoch for people.
func (s *Store) URL(epoch int, file string) string {
	return scheme + s.place.Bucket + "/" + s.key(epoch, file)
}

// validFile wants a name that is one of a file, wherever it came from.
func validFile(name string) bool {
	return name != "" && len(name) < 256 && name[0] != '.' && filepath.Base(name) == name && !strings.ContainsAny(name, "\x00\n\r\\")
}

// DamagedError says that an object is not what was put.
type DamagedError struct {
	Object, What    string
	Expected, Found string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged: %s: expected %s, found %s", e.Object, e.What, e.Expected, e.Found)
}

// errStall ends a request of which no byte moves.
var errStall = errors.New("no byte moved")

// localError is a failure of this machine, such as a full disk: the store cannot help.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// moved is called by a request whenever bytes move.
type moved func()

// request makes a request, several times if need be. what names it for people.
func (s *Store) request(ctx context.Context, what string, f func(ctx context.Context, touch moved) error) error {
	var err error
	for try := range s.tries {
		if try > 0 {
			wait := time.NewTimer(min(pause<<(try-1), maxPause))
			select {
			case <-wait.C:
			case <-ctx.Done():
				wait.Stop()
				return fmt.Errorf("%s: %w", what, context.Cause(ctx))
			}
		}
		err = s.once(ctx, f)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if !again(err) {
			break
		}
	}
	return fmt.Errorf("%s: %w", what, s.explain(err))
}

// Pauses between tries: 0.2, 0.4, 0.8, 1.6 s.
const (
	pause    = 200 * time.Millisecond
	maxPause = 5 * time.Second
)

// once makes a request, and ends it when nothing moves for too long.
func (s *Store) once(ctx context.Context, f func(ctx context.Context, touch moved) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(s.stall, func() { cancel(errStall) })
	defer watch.Stop()
	err := f(ctx, func() { watch.Reset(s.stall) })
	if err != nil && errors.Is(context.Cause(ctx), errStall) {
		return fmt.Errorf("%w for %v", errStall, s.stall)
	}
	return err
}

// temporary are codes with a status of 4xx that another try may not see: bytes that were changed on their way, clocks,
// requests that were cut.
var temporary = []string{"BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "RequestTimeout", "InvalidDigest",
	"RequestTimeTooSkewed", "OperationAborted", "NoSuchUpload", "InvalidPart", "SlowDown", "MissingContentLength"}

// sentError is a store's answer to a request with a body. Stores that compare a signature with what arrives take bytes that
// were changed on their way for a wrong key.
type sentError struct{ err error }

func (e *sentError) Error() string { return e.err.Error() }
func (e *sentError) Unwrap() error { return e.err }

func sent(err error) error {
	if err == nil {
		return nil
	}
	return &sentError{err}
}

// again tells whether a request may go well when it is made once more.
func again(err error) bool {
	var local *localError
	var damaged *DamagedError
	if errors.As(err, &local) || errors.As(err, &damaged) || errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var r minio.ErrorResponse
	if !errors.As(err, &r) || r.StatusCode == 0 {
		return true // the network's, or cut off
	}
	if full(r) {
		return false
	}
	var with *sentError
	if errors.As(err, &with) && r.Code == wrongSignature {
		return true
	}
	return r.StatusCode >= 500 || r.StatusCode < 400 || r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusRequestTimeout ||
		slices.Contains(temporary, r.Code)
}

// unknownKey are the words of several stores for a key that they do not know.
var unknownKey = []string{"InvalidAccessKeyId", "InvalidAccessKeyID", "XAdminUserNotFound", "InvalidToken"}

const wrongSignature = "SignatureDoesNotMatch"

// full tells whether a store says that it has no room.
func full(r minio.ErrorResponse) bool {
	return r.StatusCode == http.StatusInsufficientStorage || slices.Contains([]string{"XMinioStorageFull", "QuotaExceeded", "InsufficientCapacity", "StorageFull"}, r.Code)
}

// explain says what a store's answer means, and what to do. What is not there wraps fs.ErrNotExist.
func (s *Store) explain(err error) error {
	var r minio.ErrorResponse
	if !errors.As(err, &r) {
		return err
	}
	var with *sentError
	said := strings.TrimSpace(r.Code + " " + r.Message)
	status := ""
	if r.StatusCode != 0 {
		status = fmt.Sprintf(" (status %d)", r.StatusCode)
	}
	switch {
	case r.Code == "NoSuchBucket":
		return fmt.Errorf("there is no bucket %s%s: make it, or name another one: %w", s.place.Bucket, status, fs.ErrInvalid)
	case full(r):
		return fmt.Errorf("the store has no room left: %s%s; `ckptctl gc %s --keep N` removes old epochs", said, status, s.place)
	case errors.As(err, &with) && r.Code == wrongSignature:
		return fmt.Errorf("the store does not accept the keys, or what arrives is not what was sent: %s%s; check AWS_SECRET_ACCESS_KEY, and what is between here and the store", said, status)
	case slices.Contains(unknownKey, r.Code) || r.Code == wrongSignature || r.Code == "AuthorizationHeaderMalformed":
		return fmt.Errorf("the store does not accept the keys: %s%s; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION", said, status)
	case r.Code == "NoSuchKey" || r.Code == "NoSuchUpload":
		return fmt.Errorf("it is not there%s: %w", status, fs.ErrNotExist)
	case r.Code == "AccessDenied" || r.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the store does not allow it: %s%s; these keys must be allowed to list, read, write and delete below %s: %w", said, status, s.place, fs.ErrPermission)
	}
	return fmt.Errorf("the store says %s%s", said, status)
}

// reader tells that bytes move.
type reader struct {
	io.Reader
	touch moved
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.touch()
	}
	return n, err
}
