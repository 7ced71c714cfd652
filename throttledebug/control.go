package throttledebug

import (
	"net/http"
	"strconv"
	"time"
)

const (
	maxForm    = 4 << 10 // bytes
	usualPause = time.Minute
	maxPause   = 24 * time.Hour
)

// control pauses or resumes one key. Whatever could go wrong by mistake or by malice is refused before it has an effect:
//
//	a form of another site           403, by ServeHTTP: a browser says where a POST comes from
//	a link, a picture, a prefetch    405, by ServeHTTP: GET changes nothing
//	a query in place of a form       404: only the body is read
//	a key that is not there          404: Transport.Pause would make it, and nobody would ever resume it
//	the empty key                    404: in Transport.Pause it stands for all keys
//	no time, or one of years         400: a pause from here ends after a day at most
//
// A key may be dropped between the look and the pause; then the pause makes it anew, which is what was asked for.
// The answer leads back to the page of the key, with a relative link, because this handler does not know where it is
// mounted. The script of the page does not follow it: it sees the effect in the next event.
func (p *page) control(w http.ResponseWriter, r *http.Request, verb string) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "this is not a form of the page")
		return
	}
	v := view{name: r.PostForm.Get("name"), key: r.PostForm.Get("key"), sort: newest}
	chosen := v.find(p.board.now())
	if chosen == nil || chosen.Key == "" {
		refuse(w, http.StatusNotFound, "no such key")
		return
	}
	t := p.board.transports[chosen.name]
	if verb == "resume" {
		t.Resume(chosen.Key)
	} else {
		d, ok := pauseOf(r.PostForm.Get("seconds"))
		if !ok {
			refuse(w, http.StatusBadRequest, "seconds must be a whole number from 1 to 86400")
			return
		}
		t.Pause(chosen.Key, d)
	}
	w.Header().Set("Location", "./"+v.link())
	w.WriteHeader(http.StatusSeeOther)
}

// pauseOf reads the length of a pause, in whole seconds: "90" is 1 min 30 s, and "" is a minute.
func pauseOf(seconds string) (time.Duration, bool) {
	if seconds == "" {
		return usualPause, true
	}
	n, err := strconv.Atoi(seconds)
	if err != nil || n < 1 || n > int(maxPause/time.Second) {
		return 0, false
	}
	return time.Duration(n) * time.Second, true
}
