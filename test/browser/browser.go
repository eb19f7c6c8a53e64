// Package browser controls a headless Chromium, which the lab installs (part chromium), over a pipe. Pages are opened
// without a network. Their console messages and requests are recorded.
package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Browser is one Chromium with a new profile. It is safe for concurrent use.
type Browser struct {
	cmd     *exec.Cmd
	profile string
	to      io.WriteCloser
	ended   chan struct{}

	mu      sync.Mutex
	next    int
	answers map[int]chan answer
	pages   map[string]*Page // by session
	err     error            // why no further response will come
}

type answer struct {
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// Start starts the program. It resolves no host names, so only 127.0.0.1 can be reached.
func Start(program string) (*Browser, error) {
	profile, err := os.MkdirTemp("", "lockstep-browser-*")
	if err != nil {
		return nil, err
	}
	toRead, to, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(profile))
	}
	from, toWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, toRead.Close(), to.Close(), os.RemoveAll(profile))
	}
	b := &Browser{profile: profile, to: to, answers: map[int]chan answer{}, pages: map[string]*Page{},
		ended: make(chan struct{})}
	b.cmd = exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--disable-dev-shm-usage",
		"--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--user-data-dir="+profile,
		"--remote-debugging-pipe", "about:blank")
	b.cmd.ExtraFiles = []*os.File{toRead, toWrite}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = b.cmd.Start()
	err = errors.Join(err, toRead.Close(), toWrite.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), os.RemoveAll(profile))
	}
	go b.listen(from)
	return b, nil
}

// Close ends the program with its child processes and removes its profile.
func (b *Browser) Close() error {
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	_ = b.cmd.Wait() // it was killed
	_ = b.to.Close()
	<-b.ended
	var err error
	for range 50 { // its processes may still write files
		if err = os.RemoveAll(b.profile); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// listen dispatches responses and events until the program ends.
func (b *Browser) listen(from io.ReadCloser) {
	defer close(b.ended)
	defer from.Close()
	in := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.err = fmt.Errorf("the browser ended: %w", err)
			for id, to := range b.answers {
				close(to)
				delete(b.answers, id)
			}
			b.mu.Unlock()
			return
		}
		var a answer
		if json.Unmarshal(text[:len(text)-1], &a) != nil {
			continue
		}
		b.mu.Lock()
		if to := b.answers[a.ID]; a.Method == "" && to != nil {
			to <- a
			delete(b.answers, a.ID)
		} else if p := b.pages[a.Session]; p != nil {
			p.happen(a)
		}
		b.mu.Unlock()
	}
}

// call sends a command to the browser, or to a page if session is set, and decodes the response into result, which may
// be nil.
func (b *Browser) call(ctx context.Context, session, method string, params, result any) error {
	b.mu.Lock()
	if b.err != nil {
		defer b.mu.Unlock()
		return b.err
	}
	b.next++
	id, to := b.next, make(chan answer, 1)
	b.answers[id] = to
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method, "params": params}
	if session != "" {
		message["sessionId"] = session
	}
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return fmt.Errorf("call %s of the browser: %w", method, err)
	}
	select {
	case a, open := <-to:
		switch {
		case !open:
			return fmt.Errorf("%s: the browser ended", method)
		case a.Error != nil:
			return fmt.Errorf("%s: %s", method, a.Error)
		case result != nil:
			return json.Unmarshal(a.Result, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// Page is one open page.
type Page struct {
	b       *Browser
	session string
	loaded  chan struct{}

	// guarded by b.mu
	complaints []string
	requests   []string
}

// Open opens an address and waits until the page is loaded completely.
func (b *Browser) Open(ctx context.Context, url string) (*Page, error) {
	var target struct{ TargetID string }
	if err := b.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	var attached struct{ SessionID string }
	if err := b.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&attached); err != nil {
		return nil, err
	}
	p := &Page{b: b, session: attached.SessionID, loaded: make(chan struct{}, 1)}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		if err := p.Do(ctx, domain+".enable", map[string]any{}); err != nil {
			return nil, err
		}
	}
	var went struct{ ErrorText string }
	if err := b.call(ctx, p.session, "Page.navigate", map[string]any{"url": url}, &went); err != nil {
		return nil, err
	}
	if went.ErrorText != "" {
		return nil, fmt.Errorf("open %s: %s", url, went.ErrorText)
	}
	select {
	case <-p.loaded:
		return p, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("open %s: %w", url, ctx.Err())
	}
}

// happen records the console messages and requests of a page. The caller holds the browser's mu.
func (p *Page) happen(a answer) {
	var e struct {
		Request          struct{ URL string }
		Entry            struct{ Level, Text, URL string }
		Type             string
		Args             json.RawMessage
		ExceptionDetails json.RawMessage
	}
	if json.Unmarshal(a.Params, &e) != nil {
		return
	}
	switch a.Method {
	case "Page.loadEventFired":
		select {
		case p.loaded <- struct{}{}:
		default:
		}
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	case "Log.entryAdded":
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			p.complaints = append(p.complaints, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case "Runtime.consoleAPICalled":
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			p.complaints = append(p.complaints, fmt.Sprintf("console.%s: %s", e.Type, e.Args))
		}
	case "Runtime.exceptionThrown":
		p.complaints = append(p.complaints, "exception: "+string(e.ExceptionDetails))
	}
}

// Complaints returns the errors and warnings of the page's console so far.
func (p *Page) Complaints() []string {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return slices.Clone(p.complaints)
}

// Requests returns the addresses that the page has requested so far. The page's own address is first. Data URLs are
// left out.
func (p *Page) Requests() (urls []string) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	for _, u := range p.requests {
		if !strings.HasPrefix(u, "data:") {
			urls = append(urls, u)
		}
	}
	return urls
}

// Do calls a method of the DevTools protocol.
func (p *Page) Do(ctx context.Context, method string, params map[string]any) error {
	return p.b.call(ctx, p.session, method, params, nil)
}

// Eval evaluates a JavaScript expression in the page, also if the page's content security policy forbids it.
func (p *Page) Eval(ctx context.Context, expression string, value any) error {
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	params := map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}
	if err := p.b.call(ctx, p.session, "Runtime.evaluate", params, &got); err != nil {
		return err
	}
	if got.ExceptionDetails != nil {
		return fmt.Errorf("evaluate %s: %s", expression, got.ExceptionDetails)
	}
	return json.Unmarshal(got.Result.Value, value)
}

// Size sets the size of the page's screen. A narrow screen is a phone.
func (p *Page) Size(ctx context.Context, width, height int) error {
	return p.Do(ctx, "Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
}

// Dark sets the preference for dark or light colours.
func (p *Page) Dark(ctx context.Context, dark bool) error {
	value := "light"
	if dark {
		value = "dark"
	}
	return p.Do(ctx, "Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": value}}})
}

// PDF prints the page.
func (p *Page) PDF(ctx context.Context) ([]byte, error) {
	return p.data(ctx, "Page.printToPDF", map[string]any{"printBackground": true})
}

// Screenshot returns a picture (PNG) of the whole page, also of its invisible part.
func (p *Page) Screenshot(ctx context.Context) ([]byte, error) {
	return p.data(ctx, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true})
}

// data calls a method that returns a file in base64.
func (p *Page) data(ctx context.Context, method string, params map[string]any) ([]byte, error) {
	var out struct{ Data []byte }
	err := p.b.call(ctx, p.session, method, params, &out)
	return out.Data, err
}
