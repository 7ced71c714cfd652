// Package lab is for tests, benchmarks and examples of this repository alone. Its tests put whole clients before simulated upstreams, in
// virtual time. What it exports is what those need beside package throttletest: a language model, an account of a limit for those who
// know all about it, and figures of a ledger.
package lab
