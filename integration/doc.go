// Package integration has tests of throttle against real servers, which the tests start themselves on a free
// loopback port: nginx, HAProxy, and express-rate-limit on Node.js. A test whose program is missing is
// skipped, unless THROTTLE_REQUIRE_SERVERS is 1. Below it, conformance runs other projects' tests over
// the Transport.
package integration
