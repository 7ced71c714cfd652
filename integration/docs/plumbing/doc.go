// Package plumbing holds the recipes of docs/plumbing.md as examples, and no code: how a Transport or a Queue stands among
// the plumbing of others. They need no network, and no example depends on how long anything takes.
package plumbing
