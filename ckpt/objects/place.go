// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrPlace is wrapped when a text is not s3://BUCKET[/PREFIX].
var ErrPlace = errors.New("want s3://BUCKET or s3://BUCKET/PREFIX")

// Place is where epochs are: a bucket, and the beginning of the names in it.
type Place struct {
	Bucket string
	Prefix string // without slashes around it; may be empty
}

const scheme = "s3://"

// Is tells whether a text names a place in an object store, and no directory.
func Is(text string) bool { return strings.HasPrefix(text, scheme) }

// ParsePlace reads s3://BUCKET[/PREFIX].
func ParsePlace(text string) (Place, error) {
	rest, ok := strings.CutPrefix(text, scheme)
	bucket, prefix, _ := strings.Cut(rest, "/")
	p := Place{bucket, strings.Trim(prefix, "/")}
	switch {
	case !ok:
		return p, fmt.Errorf("%q: %w", text, ErrPlace)
	case !validBucket(bucket):
		return p, fmt.Errorf("%q: %w: %q is not the name of a bucket (3 to 63 of a-z, 0-9, - and .)", text, ErrPlace, bucket)
	case !validPrefix(p.Prefix):
		return p, fmt.Errorf("%q: %w: a prefix is printable, at most %d bytes long, and has no empty part, and none of dots alone", text, ErrPlace, maxPrefix)
	}
	return p, nil
}

func validBucket(b string) bool {
	return len(b) >= 3 && len(b) <= 63 && strings.Trim(b, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" &&
		!strings.HasPrefix(b, "-") && !strings.HasPrefix(b, ".") && !strings.HasSuffix(b, "-") && !strings.HasSuffix(b, ".") && !strings.Contains(b, "..")
}

// maxPrefix leaves room for names of epochs and files in a key, which S3 bounds to 1024 bytes.
const maxPrefix = 512

func validPrefix(p string) bool {
	if len(p) > maxPrefix {
		return false
	}
	for _, part := range strings.Split(p, "/") {
		if part == "" && p != "" || part == "." || part == ".." {
			return false
		}
	}
	for _, r := range p {
		if !strconv.IsPrint(r) || r == '\\' {
			return false
		}
	}
	return true
}

// String is the text that ParsePlace reads.
func (p Place) String() string {
	if p.Prefix == "" {
		return scheme + p.Bucket
	}
	return scheme + p.Bucket + "/" + p.Prefix
}

// Options say how a store is reached. Credentials are in the usual places: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN, or the file of AWS_SHARED_CREDENTIALS_FILE with AWS_PROFILE.
type Options struct {
	Endpoint string // http[s]://HOST[:PORT]; "": AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or Amazon's
	Plain    bool   // http without TLS may also leave this machine
	Stall    time.Duration
	Tries    int
}

// Defaults of Options.
const (
	DefaultStall = time.Minute
	defaultTries = 5
	// LeastStall and MostStall bound what a person may choose.
	LeastStall = time.Second
	MostStall  = time.Hour
)

// complete fills in what the environment says.
func (o Options) complete(getenv func(string) string) Options {
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if o.Endpoint == "" {
			o.Endpoint = getenv(name)
		}
	}
	if o.Stall == 0 {
		o.Stall = DefaultStall
	}
	if o.Tries == 0 {
		o.Tries = defaultTries
	}
	return o
}

// amazon is the endpoint when none is named.
const amazon = "s3.amazonaws.com"

// CheckEndpoint says what is wrong with an endpoint.
func CheckEndpoint(text string) error {
	if text == "" {
		return errors.New("is empty")
	}
	_, _, err := splitEndpoint(text, true)
	return err
}

// splitEndpoint reads http[s]://HOST[:PORT].
func splitEndpoint(text string, plain bool) (host string, secure bool, err error) {
	if text == "" {
		return amazon, true, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return "", false, fmt.Errorf("endpoint %q: want http://HOST[:PORT] or https://HOST[:PORT], without a path", text)
	}
	if u.Scheme == "http" && !plain && !loopback(u.Hostname()) {
		return "", false, fmt.Errorf("endpoint %q: without TLS everybody on the way could read and change the images: name an https endpoint, or allow it with --object-http yes (CKPT_OBJECT_HTTP)", text)
	}
	return u.Host, u.Scheme == "https", nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
