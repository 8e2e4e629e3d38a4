// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a fault does to a request.
const (
	Late     = "late"      // it is answered after Wait
	Silent   = "silent"    // it is never answered
	Status   = "status"    // it is not made, and answered with Code and Word
	Changed  = "changed"   // a byte of what is sent is another one
	Wrong    = "wrong"     // a byte of the answer is another one
	Short    = "short"     // the answer is cut in its middle
	CutOff   = "cut"       // the connection is cut in the middle of what is sent
	Lost     = "lost"      // it is carried out, and its answer is lost
	Twice    = "twice"     // it is carried out twice, and the second answer is given
	Nothing  = "nothing"   // it is not made, and answered as if it were
	Paused   = "paused"    // it waits until Proxy.Resume
	allTimes = 1 << 30     // a fault without Times
	maxBody  = 1<<30 + 512 // of what tests send
)

// Fault is something that goes wrong with some requests.
type Fault struct {
	Do      string
	Method  string // "": any
	Has     string // in the path and query; "": any
	Without string // not in them; "": any
	Times   int    // 0: always
	Wait    time.Duration
	Code    int
	Word    string // code of the answer in S3's words
}

// Proxy stands between clients and a server.
type Proxy struct {
	Endpoint string

	server *Server
	client *http.Client
	mu     sync.Mutex
	faults []*Fault
	seen   []string
	resume chan struct{}
	met    chan struct{} // closed when a request is paused
}

// Proxy puts a proxy in front of the server, until the test ends.
func (s *Server) Proxy(t *testing.T) *Proxy {
	t.Helper()
	p := &Proxy{server: s, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}},
		resume: make(chan struct{}), met: make(chan struct{})}
	web := httptest.NewServer(p)
	p.Endpoint = web.URL
	t.Cleanup(func() {
		p.Set()
		p.Resume()
		web.CloseClientConnections()
		web.Close()
	})
	return p
}

// Set replaces all faults.
func (p *Proxy) Set(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
	for _, f := range faults {
		if f.Times == 0 {
			f.Times = allTimes
		}
		p.faults = append(p.faults, &f)
	}
}

// Met is closed when a request waits for Resume.
func (p *Proxy) Met() <-chan struct{} { return p.met }

// Resume lets requests go on that were paused, for good.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resume:
	default:
		close(p.resume)
	}
}

// Seen lists all requests, "METHOD PATH?QUERY", in their order.
func (p *Proxy) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

func (p *Proxy) take(r *http.Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, r.Method+" "+r.URL.RequestURI())
	for _, f := range p.faults {
		uri := r.URL.RequestURI()
		if f.Times > 0 && (f.Method == "" || f.Method == r.Method) && strings.Contains(uri, f.Has) && (f.Without == "" || !strings.Contains(uri, f.Without)) {
			f.Times--
			return f
		}
	}
	return &Fault{}
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p.take(r)
	in := io.Reader(io.LimitReader(r.Body, maxBody))
	if f.Do == CutOff {
		_, _ = io.CopyN(io.Discard, in, r.ContentLength/2)
		cut(w)
		return
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return // the client has gone
	}
	switch f.Do {
	case Late:
		time.Sleep(f.Wait)
	case Silent:
		<-r.Context().Done()
		return
	case Paused:
		p.mu.Lock()
		select {
		case <-p.met:
		default:
			close(p.met)
		}
		p.mu.Unlock()
		select {
		case <-p.resume:
		case <-r.Context().Done():
			return
		}
	case Status:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(f.Code)
		_, _ = fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>made up</Message></Error>", f.Word)
		return
	case Nothing:
		w.Header().Set("ETag", `"0"`)
		return
	case Changed:
		if len(body) > 0 {
			body[len(body)/2] ^= 1
		}
	case Twice:
		_, _, _ = p.forward(r, body)
	}
	answer, text, err := p.forward(r, body)
	if err != nil || f.Do == Lost {
		cut(w)
		return
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	switch {
	case f.Do == Wrong && len(text) > 0:
		text[len(text)/2] ^= 1
	case f.Do == Short && len(text) > 0:
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(text[:len(text)/2])
		if flush, ok := w.(http.Flusher); ok {
			flush.Flush()
		}
		cut(w)
		return
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(text)
}

// forward makes a request as the client has signed it.
func (p *Proxy) forward(r *http.Request, body []byte) (*http.Response, []byte, error) {
	out, err := http.NewRequest(r.Method, p.server.Endpoint+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	answer, err := p.client.Do(out)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return answer, text, err
}

// cut ends a connection so that both ends see it.
func cut(w http.ResponseWriter) {
	h, ok := w.(http.Hijacker)
	if !ok {
		return
	}
	conn, _, err := h.Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
