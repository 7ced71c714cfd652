//go:build !unix

package fleets

import "errors"

var errUnix = errors.New("a process cannot be stopped and continued on this system")

func (s *server) stall() error  { return errUnix }
func (s *server) resume() error { return errUnix }
