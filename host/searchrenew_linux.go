package host

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// renewTime bounds the reading of folders, for which nobody waits.
const renewTime = 30 * time.Second

// Renew looks at the folders that searches leave for later, so that the next one
// knows of a file that is new in one of them. It is for while a command runs: it
// works with low priority, and ends early once stop is closed. Where nothing is
// left for later it does nothing.
func (s *Searcher) Renew(stop <-chan struct{}) {
	if !s.beginRenew() {
		return
	}
	own := NewSearcher(s.search, "")
	own.file, own.folders, own.whole, own.prompt, own.time = s.file, s.folders, s.whole, s.prompt, s.time
	end := make(chan bool)
	go func() { end <- own.renew(stop) }() // whose thread ends with it
	done := <-end
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewing = false
	switch {
	case !done || s.index == nil || s.index.later == 0:
	case s.index.unread == 0 && sameFiles(s.index, own.index):
		s.index.looked = own.index.looked
	default:
		s.stopWatch()
		s.index = own.index
	}
}

// Renewable reports whether there is something for Renew to do, and whether the
// last look at all folders is longer ago than age, or there was no time for all.
func (s *Searcher) Renewable(age time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewable() && (s.index.unread > 0 || time.Since(time.Unix(s.index.looked, 0)) > age)
}

func (s *Searcher) renewable() bool {
	return !s.renewing && s.file != "" && s.index != nil && s.index.later > 0
}

func (s *Searcher) beginRenew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.renewable() {
		return false
	}
	s.renewing = true
	return true
}

// renew searches by the whole index, and reports whether it came to the end.
func (s *Searcher) renew(stop <-chan struct{}) bool {
	// Never unlocked: a thread with this priority is of no use to others.
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 10)
	root, err := ignoringEINTR(func() (int, error) {
		return unix.Open(s.search.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return false
	}
	defer unix.Close(root)
	s.load()
	if s.index == nil || !s.loadWhole() {
		return false
	}
	r := &searchRound{Searcher: s, root: root, limit: renewTime, stop: stop}
	if r.run(); r.stopped() {
		return false
	}
	if s.index.later == 0 { // nothing has changed
		s.index.looked = r.began.Unix()
		s.index = s.near()
		return writePrivate(s.file, s.index.encode(s.key)) == nil
	}
	return true
}

// lookUntil is verifyFolders for a search that may be stopped.
func (r *searchRound) lookUntil() {
	for from := 0; from < len(r.old) && !r.stopped(); from += searchChunk {
		to := min(from+searchChunk, len(r.old))
		verifyPart(r.root, r.old[from:to], r.state[from:to])
	}
}

// stopped reports whether nobody wants the search any more.
func (r *searchRound) stopped() bool {
	select {
	case <-r.stop: // never, if it is nil
		return true
	default:
		return false
	}
}

// sameFiles reports whether two indexes know of the same files.
func sameFiles(a, b *searchIndex) bool {
	one, other := a.found(""), b.found("")
	if len(one.Files) != len(other.Files) {
		return false
	}
	for i := range one.Files {
		if one.Files[i] != other.Files[i] {
			return false
		}
	}
	return true
}
