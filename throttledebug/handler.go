package throttledebug

import (
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/go-throttle/throttle"
)

// Handler returns a handler that shows the Transports under the names that they have in the map. The map is copied. A
// nil Transport is shown as such, and a map without any makes a page that says so. The page is read-only: methods other
// than GET are answered with 405. It is safe for concurrent use. Looking at a Transport counts as its first use, so set
// its fields before the page is served.
func Handler(transports map[string]*throttle.Transport) http.Handler {
	return &page{board: newBoard(transports)}
}

// Controls is Handler with buttons that pause and resume the chosen key, for those who may operate the program. They
// send POST requests to /pause (name, key and seconds, 60 if absent, at most a day) and /resume (name and key), which
// are refused if a browser sends them from another origin. A key that is not there is not made.
func Controls(transports map[string]*throttle.Transport) http.Handler {
	return &page{board: newBoard(transports), controls: true}
}

// A page is the handler. What it knows is in its board; nothing of a request is kept. So any number of browsers may look
// at different views, and each view is in its own address.
type page struct {
	board    *board
	controls bool
}

// web holds what a browser loads beside the page. Charts are drawn by uPlot (MIT), see web/uplot.
//
//go:embed web
var web embed.FS

// An asset is a file of web as it is served.
type asset struct {
	kind string // Content-Type
	tag  string // ETag: a hash of the content, so that a new version is seen at once
	body string
}

// assets are the files by their last name: web/uplot/uPlot.min.css is served as uPlot.min.css. They are read once, when
// the program starts, and never change.
var assets = loadAssets()

// kinds are the files of web that are served, by extension. The license and the template are not, and nothing is looked
// up in a file system when a request comes, so no path can lead out of it.
var kinds = map[string]string{
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
}

// loadAssets reads what was embedded. It cannot fail: the files are part of the program.
func loadAssets() map[string]asset {
	all := map[string]asset{}
	fs.WalkDir(web, "web", func(name string, _ fs.DirEntry, err error) error {
		if kind := kinds[path.Ext(name)]; kind != "" {
			body, _ := web.ReadFile(name)
			sum := fnv.New64a()
			sum.Write(body)
			all[path.Base(name)] = asset{kind, fmt.Sprintf(`"%x"`, sum.Sum64()), string(body)}
		}
		return err
	})
	return all
}

// ServeHTTP answers in the goroutine of the request, and may be called by any number of them at once.
// It looks at the origin first, then at the method, then at the path: nothing is said to a page of another
// origin, not even what is there.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	file := strings.TrimPrefix(r.URL.Path, "/") // StripPrefix may have left the slash or not
	control := p.controls && (file == "pause" || file == "resume")
	switch {
	case !sameOrigin(r) && !followed(r, file):
		refuse(w, http.StatusForbidden, "this page does not answer requests of other origins")
	case control && r.Method == http.MethodPost:
		p.control(w, r, file)
	case control:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "POST only")
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		refuse(w, http.StatusMethodNotAllowed, "GET only")
	default:
		p.get(w, r, file)
	}
}

// get serves one file. What is embedded may be kept by the browser if it asks whether it has changed; the rest may not
// be kept at all.
func (p *page) get(w http.ResponseWriter, r *http.Request, file string) {
	switch file {
	case "":
		p.table(w, r)
	case "events":
		p.events(w, r)
	case "state.json":
		p.state(w, r)
	default:
		a, ok := assets[file]
		if !ok {
			refuse(w, http.StatusNotFound, "no such page; if the handler is not mounted at /, wrap it in http.StripPrefix")
			return
		}
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("ETag", a.tag)
		w.Header().Set("Cache-Control", "no-cache") // ask whether it has changed
		if r.Header.Get("If-None-Match") == a.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, a.body)
	}
}

// secure sets what holds for every answer, errors too:
//
//	Content-Security-Policy       scripts, styles and streams from here alone and none inline; in nobody's frame
//	X-Content-Type-Options        state.json is never taken for a script
//	Cross-Origin-Resource-Policy  no other site loads anything as a picture or a script
//	Referrer-Policy               other sites do not see keys in addresses. It stays on for the page itself, because
//	                              without it browsers send "Origin: null" with its forms
//	Cache-Control                 what was true a second ago is kept nowhere
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// sameOrigin reports whether a request comes from this page or from no page at all. As http.CrossOriginProtection
// does, but for GET too, it believes Sec-Fetch-Site where a browser sends it, because no script can set that; older
// browsers, and pages over plain HTTP, are known by Origin. A program such as curl sends neither and is let in.
//
// An example: behind a proxy that changes Host, the page's own POST has an Origin that differs from Host, and
// Sec-Fetch-Site: same-origin. It is let in.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return true
	case "":
	default:
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// followed reports whether somebody has followed a link of another site to the page, such as one in a chat. The other
// site sees nothing of it: a document of its own is opened, in no frame. Everything that the page then loads is of the
// same origin. A form that another site sends is a POST, and has an Origin.
func followed(r *http.Request, file string) bool {
	return file == "" && r.Method == http.MethodGet && r.Header.Get("Origin") == "" &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// refuse answers in one line of text that says who refuses, because the handler is part of a larger program.
func refuse(w http.ResponseWriter, status int, text string) {
	http.Error(w, "throttledebug: "+text, status)
}

// slashless returns where a request for the page goes whose path lacks the final slash, or "". Relative links of
// /debug/throttle would lead to /debug/app.js. The prefix was stripped from the URL, so the request line is asked.
func slashless(r *http.Request) string {
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil || u.Path == "" || strings.HasSuffix(u.Path, "/") {
		return ""
	}
	to := url.URL{Path: "./" + path.Base(u.Path) + "/", RawQuery: r.URL.RawQuery}
	return to.String()
}
