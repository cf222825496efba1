package cli

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// Long work is named and taken back, short work is not, and nothing is said where
// there is no terminal.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var long, short, file bytes.Buffer
		done := progressOn(&long, "trying", time.Second)
		time.Sleep(2 * time.Second) // of the bubble's clock
		synctest.Wait()
		if long.String() != "cloche: trying…" {
			t.Errorf("long work shows %q", long.String())
		}
		done()
		done()
		if long.String() != "cloche: trying…\r\x1b[K" {
			t.Errorf("after long work there is %q", long.String())
		}
		progressOn(&short, "trying", time.Second)()
		newWords(&file).progress("trying")()
		time.Sleep(2 * time.Second) // of the bubble's clock
		synctest.Wait()
		if short.Len() > 0 || file.Len() > 0 {
			t.Errorf("short work shows %q, a file gets %q", short.String(), file.String())
		}
	})
}
