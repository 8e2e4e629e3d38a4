// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/store"
)

// timedStore has epochs with the times of their stages, one of which is left in the history alone.
func timedStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Create(filepath.Join(t.TempDir(), "ck<pt> & \"co\""))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		makeEpoch(t, s, n, 3, 2*time.Second)
		m, err := s.Manifest(n)
		if err != nil {
			t.Fatal(err)
		}
		m.Program, m.Args = "./<heat>", []string{"./<heat>", "</script>"}
		m.Asked = m.Time.Add(-time.Duration(m.TotalSeconds * float64(time.Second)))
		for i := range m.Images {
			m.Images[i].StopSeconds = 0.05
			m.Images[i].Phases = []store.Phase{{Name: "agree", Seconds: 0.5}, {Name: "stop", At: 0.5, Seconds: 0.01},
				{Name: "drain", At: 0.51, Seconds: 0.03}, {Name: "snapshot", At: 0.54, Seconds: 0.01}, {Name: "write", At: 0.55, Seconds: 1 + float64(i)/4}}
		}
		if err := os.Remove(filepath.Join(s.EpochDir(n), "manifest.json")); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(n, m, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.AppendHistory(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Retire(2); err != nil {
		t.Fatal(err)
	}
	return s
}

var number = regexp.MustCompile(`(?:x|y|width|height|x1|x2|y1|y2)="([^"]*)"`)

func TestReport(t *testing.T) {
	s := timedStore(t)
	out := filepath.Join(t.TempDir(), "report.html")
	if status, _, said := ctl(t, "report", s.Dir(), "--out", out); status != exitOK {
		t.Fatalf("%d: %s", status, said)
	}
	page := string(mustReadFile(t, out))
	// Well formed, so that nothing of the job's is markup.
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta"}, xml.HTMLEntity
	rows, bars, svgs := 0, 0, 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			switch e.Name.Local {
			case "tr":
				rows++
			case "rect":
				bars++
			case "svg":
				svgs++
			case "script", "img", "link", "iframe", "heat":
				t.Errorf("the page has <%s>", e.Name.Local)
			}
			for _, a := range e.Attr {
				if a.Name.Local == "src" || a.Name.Local == "href" || strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("the page has %s=%q", a.Name.Local, a.Value)
				}
			}
		}
	}
	// Three epochs; of them stop 3, stages 5 each, size 2 each, write 1 each; of two ranks 3, 1 and 2 each.
	if legends := 1 + 5 + 2 + 1 + 3 + 1 + 2; rows != 4 || bars != 3*(1+5+2+1)+2*(3+1+2)+legends || svgs < 7 {
		t.Errorf("%d rows, %d bars, %d svg", rows, bars, svgs)
	}
	for _, text := range []string{"removed", "epoch 3", "50ms", "./&lt;heat&gt; &lt;/script&gt;", "default-src &#39;none&#39;"} {
		if !strings.Contains(page, text) && !strings.Contains(page, strings.ReplaceAll(text, "&#39;", "'")) {
			t.Errorf("no %q", text)
		}
	}
	for _, m := range number.FindAllStringSubmatch(page, -1) {
		var v float64
		if _, err := fmt.Sscan(m[1], &v); err != nil || v < -1 || v > 2*plotWidth || math.IsNaN(v) {
			t.Errorf("a place in a plot: %q", m[1])
		}
	}
	if strings.Contains(page, "http://") || strings.Contains(page, "https://") || strings.Contains(page, "NaN") || strings.Contains(page, "url(") {
		t.Error("the page wants something from elsewhere, or has what is no number")
	}
	t.Run("browser", func(t *testing.T) { inBrowser(t, out) })
}

// TestReportSaysWhere: of an epoch that has what changed, the memory is all of it, and it says what it needs; of one in local
// directories, its levels, and how long it took to raise it.
func TestReportSaysWhere(t *testing.T) {
	full := store.History{Manifest: store.Manifest{Epoch: 1, Ranks: 1, Images: []store.Image{{Bytes: 6 << 20, Payload: 10 << 20}}}}
	part := store.History{Manifest: store.Manifest{Epoch: 3, Ranks: 1, Needs: []int{1}, Images: []store.Image{{Bytes: 1 << 20, Payload: 2 << 20, Shared: 8 << 20}}}}
	local := store.History{Manifest: store.Manifest{Epoch: 4, Ranks: 1, Level: 4, Levels: &levels.Record{Done: []int{1, 4}, Took: []levels.Took{{Level: 4, Seconds: 2.5}}},
		Images: []store.Image{{Bytes: 1 << 20, Payload: 2 << 20}}}}
	if f, p := rowOf(&full), rowOf(&part); p.Memory != f.Memory || p.Needs != "1" || f.Needs != "-" || f.Levels != "-" {
		t.Errorf("%+v, %+v", f, p)
	}
	if l := rowOf(&local); l.Levels != "L1+4, L4 in 2.5s" {
		t.Errorf("%+v", l)
	}
	page, err := reportPage(t.TempDir(), []store.History{full, part, local}, 0, 10, time.Now())
	if err != nil || !bytes.Contains(page, []byte("<td>1</td><td>-</td></tr>")) || !bytes.Contains(page, []byte("<td>L1&#43;4, L4 in 2.5s</td>")) {
		t.Errorf("%v: %s", err, page)
	}
}

// inBrowser shows the page in a real browser: it draws the plots, and complains of nothing.
func inBrowser(t *testing.T, page string) {
	chromium := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = path
			break
		}
	}
	if chromium == "" {
		t.Skip("no chromium: the page was parsed only, not shown")
	}
	shot := filepath.Join(t.TempDir(), "shot.png")
	options := []string{"--headless=new", "--no-sandbox", "--disable-gpu", "--force-color-profile=srgb", "--blink-settings=preferredColorScheme=1",
		"--user-data-dir=" + t.TempDir(), "--window-size=1100,2400", "--enable-logging=stderr"}
	run := func(more ...string) string {
		cmd := exec.CommandContext(t.Context(), chromium, append(options, append(more, "file://"+page)...)...)
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, errOut.String())
		}
		if strings.Contains(errOut.String(), "CONSOLE") {
			t.Errorf("the browser complains: %s", errOut.String())
		}
		return out.String()
	}
	if dom := run("--dump-dom"); strings.Count(dom, "<figure>") != 7 || !strings.Contains(dom, `<table id="epochs">`) {
		t.Errorf("the browser sees %d figures", strings.Count(dom, "<figure>"))
	}
	run("--screenshot=" + shot)
	picture, err := png.Decode(bytes.NewReader(mustReadFile(t, shot)))
	if err != nil {
		t.Fatal(err)
	}
	// The colours of the plots are on the screen: each series takes some of it.
	seen := map[[3]uint32]int{}
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y++ {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
			r, g, b, _ := picture.At(x, y).RGBA()
			seen[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	for name, c := range map[string][3]uint32{"stop": {0x3b, 0x6f, 0xb6}, "drain": {0xed, 0xae, 0x49}, "write": {0x2a, 0x9d, 0x8f}, "memory": {0xa9, 0xb4, 0xc0}} {
		if seen[c] < 1000 {
			t.Errorf("%s: %d pixels of its colour are on the screen", name, seen[c])
		}
	}
}

func TestSteps(t *testing.T) {
	for _, base := range []float64{10, 1024} {
		for _, top := range []float64{1e-9, 0.003, 0.9, 1, 7, 42, 999, 1023, 1025, 1e6, 3e13} {
			list := steps(top, base)
			if n := len(list); n < 2 || n > 8 || list[0] != 0 || list[n-1] < top || list[n-2] >= top {
				t.Errorf("%v to base %v: %v", top, base, list)
			}
		}
	}
}

func TestTrace(t *testing.T) {
	s := timedStore(t)
	out := filepath.Join(t.TempDir(), "trace.json")
	if status, _, said := ctl(t, "trace", s.Dir(), "-o", out); status != exitOK {
		t.Fatal(said)
	}
	var trace traceFile
	d := json.NewDecoder(bytes.NewReader(mustReadFile(t, out)))
	d.DisallowUnknownFields()
	if err := d.Decode(&trace); err != nil {
		t.Fatal(err)
	}
	names := map[[2]int]string{}
	end := map[[3]int]float64{}
	count := 0
	for _, e := range trace.Events {
		at := [2]int{e.PID, e.TID}
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			names[at] = e.Args["name"].(string)
		case e.Ph == "X":
			count++
			if names[at] == "" || e.Dur == nil || *e.Dur < 0 || e.Ts < 0 {
				t.Errorf("%+v", e)
			} else if e.PID > 0 {
				here := [3]int{e.PID, e.TID, int(e.Args["epoch"].(float64))}
				if e.Ts < end[here]-1 { // stages of a rank follow each other
					t.Errorf("%s of %s begins at %v, before %v", e.Name, names[at], e.Ts, end[here])
				}
				end[here] = e.Ts + *e.Dur
			}
		}
	}
	if count != 3*(2+2*5) || names[[2]int{1, 2}] != "rank 1" {
		t.Errorf("%d events, %v", count, names)
	}
	_, one, _ := ctl(t, "trace", s.Dir()+"/@1") // it is in the history alone
	if err := json.Unmarshal([]byte(one), &trace); err != nil || !strings.Contains(one, `"epoch 1"`) || strings.Contains(one, `"epoch 2"`) {
		t.Errorf("%v: %s", err, one)
	}
}

// What is wrong with where a page, a trace or metrics shall be is said, and nothing is left behind.
func TestOutputsRefused(t *testing.T) {
	s := timedStore(t)
	work := t.TempDir()
	there := filepath.Join(work, "there")
	pipe := filepath.Join(work, "pipe")
	if err := errors.Join(os.WriteFile(there, []byte("x"), 0o600), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"report", s.Dir()}, exitUsage, "--out"},
		{[]string{"report", s.Dir(), "-o", there}, exitFailed, "there already"},
		{[]string{"report", s.Dir(), "-o", pipe, "--force"}, exitFailed, "not a regular file"},
		{[]string{"report", s.Dir(), "-o", work}, exitFailed, "not a regular file"},
		{[]string{"report", s.Dir(), "-o", filepath.Join(work, "no", "x")}, exitFailed, "no such file"},
		{[]string{"report", s.Dir() + "/@9", "-o", filepath.Join(work, "x")}, exitNone, "epoch 9"},
		{[]string{"report", empty, "-o", filepath.Join(work, "x")}, exitNone, "no committed"},
		{[]string{"report", pipe, "-o", filepath.Join(work, "x")}, exitFailed, "not a directory"},
		{[]string{"report", s.Dir(), "-o", filepath.Join(work, "x"), "--last", "0"}, exitUsage, "--last"},
		{[]string{"trace", s.Dir(), "-o", there}, exitFailed, "there already"},
		{[]string{"trace", empty}, exitNone, "no committed"},
		{[]string{"trace", s.Dir() + "/@9"}, exitNone, "epoch 9"},
		{[]string{"metrics", filepath.Join(work, "none")}, exitFailed, "no such file"},
		{[]string{"metrics", s.Dir(), "--textfile", pipe}, exitFailed, "not a regular file"},
		{[]string{"metrics", s.Dir(), "--textfile", there, "--listen", "127.0.0.1:0"}, exitUsage, "not both"},
		{[]string{"metrics", s.Dir(), "--listen", "0.0.0.0:0"}, exitUsage, "this host alone"},
		{[]string{"metrics", s.Dir(), "--listen", "9500"}, exitUsage, "ADDRESS:PORT"},
		{[]string{"metrics", s.Dir(), "--period", "1s"}, exitUsage, "--textfile"},
		{[]string{"checkpoint", s.Dir(), "--trace", there}, exitFailed, "there already"},
	} {
		status, _, said := ctl(t, c.args...)
		if status != c.exit || !strings.Contains(said, c.want) {
			t.Errorf("%v: exit status %d: %s", c.args, status, said)
		}
	}
	if left, err := os.ReadDir(work); err != nil || len(left) != 2 || string(mustReadFile(t, there)) != "x" {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if status, _, said := ctl(t, "report", s.Dir(), "-o", there, "--force"); status != exitOK {
		t.Error(said)
	}
	full := smallDisk(t, "8k")
	if status, _, said := ctl(t, "report", s.Dir(), "-o", filepath.Join(full, "r.html")); status != exitFailed || !strings.Contains(said, "no space left") {
		t.Errorf("a full disk: %d: %s", status, said)
	}
	if left, _ := os.ReadDir(full); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// families reads metrics by Prometheus' own parser, and has its linter look at them.
func families(t *testing.T, text string) map[string]float64 {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	list, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for name, f := range list {
		for _, m := range f.Metric {
			key := name
			for _, l := range m.Label {
				if l.GetName() != "dir" && l.GetName() != "host" {
					key += " " + l.GetName() + "=" + l.GetValue()
				}
			}
			if m.Gauge != nil {
				out[key] = m.Gauge.GetValue()
			} else {
				out[key] = m.Counter.GetValue()
			}
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	s := timedStore(t)
	status, out, said := ctl(t, "metrics", s.Dir())
	if status != exitOK {
		t.Fatal(said)
	}
	got := families(t, out)
	for name, want := range map[string]float64{"libckpt_epochs state=committed": 2, "libckpt_epoch_newest": 3, "libckpt_epoch_stop_seconds": 0.2,
		"libckpt_rank_phase_seconds rank=1 phase=write": 1.25, "libckpt_rank_stop_seconds rank=0": 0.05, "libckpt_job_up": 0} {
		if v, ok := got[name]; !ok || math.Abs(v-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	if _, out, _ := ctl(t, "metrics", s.Dir(), "--per-rank=false"); strings.Contains(out, "libckpt_rank") {
		t.Error("ranks in spite of --per-rank=false")
	}
	file := filepath.Join(t.TempDir(), "x.prom")
	for range 2 {
		if status, _, said := ctl(t, "metrics", s.Dir(), "--textfile", file); status != exitOK {
			t.Fatal(said)
		}
	}
	if got := families(t, string(mustReadFile(t, file))); got["libckpt_epoch_newest"] != 3 {
		t.Errorf("%v", got)
	}
	// A directory without an epoch has metrics too: a job that has made none yet is to be seen.
	if status, out, said := ctl(t, "metrics", t.TempDir()); status != exitOK || families(t, out)["libckpt_epochs state=committed"] != 0 {
		t.Errorf("%d: %s", status, said)
	}
}

func TestMetricsServed(t *testing.T) {
	s := timedStore(t)
	r, w := io.Pipe()
	done := make(chan int, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		done <- run(ctx, []string{"metrics", s.Dir(), "--listen", "127.0.0.1:0"}, w, io.Discard)
		_ = w.Close()
	}()
	var address string
	if _, err := fmt.Fscanln(r, &address); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		answer, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Fatalf("%v, %v", answer, err)
		}
		if got := families(t, string(b)); got["libckpt_epoch_newest"] != 3 {
			t.Errorf("%v", got)
		}
	}
	// The directory goes away: the answer says so.
	if err := os.RemoveAll(s.Dir()); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusInternalServerError {
		t.Errorf("%v", answer.Status)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if status := <-done; status != exitOK {
		t.Errorf("exit status %d", status)
	}
}
