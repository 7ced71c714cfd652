// Package lab is for tests alone: it puts whole clients before simulated upstreams, in virtual time.
package lab
