// Package worlds has tests alone: random worlds of many keys that share limits, and an oracle that judges them by
// what keys may do to each other, whatever the code below does to keep that. See TestWorlds for its settings.
package worlds
