// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"testing"
)

// FuzzFile: any ckpt.toml gives settings in their ranges, or is wrong usage.
func FuzzFile(f *testing.F) {
	f.Add([]byte("keep = 5\noverhead = 2.5\nexit-code = 9\ninterval = 'off'\n"))
	f.Add([]byte("signal = 'USR1=exit,USR2'\nignore-fd = '3,4'\ntimeout = '1h'\ncontrol = 'ib0'\n"))
	f.Add([]byte("[keep]\nn = 1\n"))
	f.Add([]byte("keep = [1, {a = 2}]\nlog = 1979-05-27T07:32:00Z\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o := defaults()
		if err := o.place("ckpt.toml", func() error { return o.takeFile("ckpt.toml", b) }); err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Status != ExitUsage {
				t.Errorf("%v", err)
			}
			return
		}
		if o.Keep < 1 || o.ExitCode < 0 || o.ExitCode > 255 || o.Interval < 0 || o.Overhead < 0 || o.Overhead >= 1 || o.Timeout < 0 ||
			o.Interval > 0 && (o.Overhead > 0 || o.MTBF.Known()) || o.Control == "" {
			t.Errorf("%+v", o)
		}
	})
}
