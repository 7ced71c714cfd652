package queue

import (
	"testing"
	"unsafe"
)

// A program may have 100,000 calls in line and a million keys: a word more in either is not seen in any other test.
func TestWaiterAndKeyAreSmall(t *testing.T) {
	if size := unsafe.Sizeof(waiter{}); size > 96 {
		t.Errorf("a waiter has %d bytes; the size class has 96", size)
	}
	if size := unsafe.Sizeof(entry{}); size > 208 {
		t.Errorf("a key has %d bytes; the size class has 208", size)
	}
}
