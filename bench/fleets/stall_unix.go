//go:build unix

package fleets

import "syscall"

// stall stops the server where it stands: it keeps its connections and answers nobody.
func (s *server) stall() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// resume lets it go on.
func (s *server) resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }
