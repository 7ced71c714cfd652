package usage

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
)

// This file reads the binary streams of Bedrock (docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html,
// smithy.io/2.0/aws/amazon-eventstream.html). A message is
//
//	4 bytes  its length
//	4 bytes  the length of its headers
//	4 bytes  a checksum
//	headers  names and values: the type of the event, or of the exception
//	payload  a JSON document
//	4 bytes  a checksum
//
// ConverseStream has its usage in the payload of the last message. InvokeModelWithResponseStream has documents of the
// model in base64: {"bytes": "eyJ0eXBlIjoi..."}. The checksums are up to the client.

// Sizes of parts of a message.
const (
	preludeSize  = 12
	checksumSize = 4
)

// throttling and unavailable are the exceptions that refuse.
const (
	throttling  = "throttlingException"
	unavailable = "serviceUnavailableException"
)

// A frame is how far a message has come.
type frame struct {
	at      int64 // bytes of it that have come
	prelude [preludeSize]byte
}

// frames reads the next piece of a binary stream. What is not one says nothing from there on.
func (w *Watcher) frames(p []byte) {
	w.scanner.framed = true
	for f := &w.frame; len(p) > 0; {
		length := int64(binary.BigEndian.Uint32(f.prelude[:4]))
		payload := preludeSize + int64(binary.BigEndian.Uint32(f.prelude[4:8])) // where it begins
		n := 0
		switch {
		case f.at < preludeSize:
			n = copy(f.prelude[f.at:], p)
		case payload > length-checksumSize:
			w.kind = opaque
			return
		case f.at < payload: // kept where strings are
			n = int(min(int64(len(p)), payload-f.at))
			w.scanner.keep(p[:n])
		case f.at < length-checksumSize:
			n = int(min(int64(len(p)), length-checksumSize-f.at))
			if f.at == payload {
				w.scanner.exception()
			}
			if w.scanner.feed(p[:n]) < n {
				w.scanner.state = broken
			}
		default:
			n = int(min(int64(len(p)), length-f.at))
		}
		if p, f.at = p[n:], f.at+int64(n); f.at == length && f.at >= preludeSize+checksumSize {
			w.count()
			*f = frame{}
		}
	}
}

// exception looks at the headers of a message, which are kept.
func (s *scanner) exception() {
	for _, name := range [...]string{throttling, unavailable} {
		if bytes.Contains(s.buf[:min(s.kept, maxText)], []byte(name)) {
			s.event.code, s.event.overloaded = name, name == unavailable
		}
	}
}

// unwrap reads the document that is b in base64, if it is not too long.
func (s *scanner) unwrap(b []byte) {
	if !s.framed || s.kept > maxText {
		return
	}
	var doc [maxText]byte
	if n, err := base64.StdEncoding.Decode(doc[:], b); err == nil {
		inner := scanner{tree: s.tree}
		inner.reset()
		if inner.feed(doc[:n]) == n && inner.state == complete {
			s.event = inner.event
		}
	}
}
