// Package docs holds tests of the documentation, and no code. They read the files of the tree and need no network:
//
//   - names_test.go: each exported name of the packages that users import says when to use it, or an example shows it;
//   - lists_test.go: no public package is missing from that, and the workflow knows the oldest Go that go.mod admits;
//   - pages_test.go: pages render as they are meant, and what they link to is there;
//   - plumbing_test.go: docs/plumbing.md quotes the examples of package plumbing.
//
// The go command does not see that a page has changed which lies outside of this module, and answers from its cache. So
// run them with -count=1, as CI does:
//
//	go test -count=1 ./integration/docs
package docs
