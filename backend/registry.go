package backend

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cloche-dev/cloche/host"
)

// defaultPriority is the priority of an entry that sets none.
const defaultPriority = 50

// An Entry is a backend in a registry.
type Entry struct {
	Backend Backend
	// Priority orders the automatic choice, highest first. 0 means 50.
	Priority int
	// Description is one line for people.
	Description string
	// Explicit backends are used only when they are chosen by name.
	Explicit bool
}

// A Registry is a set of backends. It is not global: two sessions of one program may have
// different ones. It is safe for concurrent use.
type Registry struct {
	mu      sync.Mutex
	entries map[string]Entry
	// generation counts changes. A detection that began in an older generation is not
	// remembered.
	generation int
	detected   map[detectionKey]Entry
}

// A detectionKey is what the outcome of a detection depends on.
type detectionKey struct {
	generation int
	uid        int
	kernel     string
	bwrap      string
}

// NewRegistry returns a registry with the given entries.
func NewRegistry(entries ...Entry) (*Registry, error) {
	r := &Registry{entries: map[string]Entry{}, detected: map[detectionKey]Entry{}}
	for _, e := range entries {
		if err := r.Register(e); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Register adds an entry. A name that is taken is an error.
func (r *Registry) Register(e Entry) error {
	if e.Backend == nil {
		return errors.New("a registry entry needs a backend")
	}
	name := e.Backend.Name()
	switch name {
	case "", "auto", "required":
		return fmt.Errorf("%q cannot be the name of a backend", name)
	}
	if e.Priority == 0 {
		e.Priority = defaultPriority
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.entries[name]; taken {
		return fmt.Errorf("backend %q is registered already; call Unregister first", name)
	}
	r.entries[name] = e
	r.changed()
	return nil
}

// changed forgets what was detected before. The caller holds the lock.
func (r *Registry) changed() {
	r.generation++
	clear(r.detected)
}

// Unregister removes the backend of that name and reports whether there was one.
func (r *Registry) Unregister(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.entries[name]; !ok {
		return false
	}
	delete(r.entries, name)
	r.changed()
	return true
}

// Get returns the entry of that name.
func (r *Registry) Get(name string) (Entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[name]
	return e, ok
}

// All returns the entries, highest priority first, then by name.
func (r *Registry) All() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Entry, 0, len(r.entries))
	for _, e := range r.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Backend.Name(), b.Backend.Name()))
	})
	return all
}

// Detect returns the entry with the highest priority that is available and not Explicit. It
// remembers the choice until the registry or the machine changes; it does not remember a
// failure. If no backend is available, the error is a *NoBackendError.
func (r *Registry) Detect(s *host.Snapshot) (Entry, error) {
	r.mu.Lock()
	key := detectionKey{r.generation, s.UID, s.Kernel, s.Bwrap.Path}
	known, ok := r.detected[key]
	r.mu.Unlock()
	if ok {
		return known, nil
	}
	none := NoBackendError{OS: s.OS}
	for _, e := range r.All() {
		if e.Explicit {
			continue
		}
		if err := e.Backend.Available(s); err != nil {
			none.Errs = append(none.Errs, err)
			continue
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if key.generation == r.generation {
			r.detected[key] = e
		}
		return e, nil
	}
	return Entry{}, &none
}

// Forget drops the remembered choices: the next Detect asks every backend again.
func (r *Registry) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.detected)
}

// A NoBackendError says that no backend works here, with the reason for each.
type NoBackendError struct {
	Errs []error
	// OS is the operating system, as Go names it. On a system without any backend, Errs is
	// empty.
	OS string
}

// Error lists every reason.
func (e *NoBackendError) Error() string {
	switch {
	case len(e.Errs) > 0:
	case e.Unsupported() && e.OS == "windows":
		return "cloche confines nothing on Windows itself: it needs the kernel of Linux, which WSL has (wsl --install, then: wsl -- cloche run …)"
	case e.Unsupported():
		return "cloche confines nothing on " + e.OS + ": it needs Linux or macOS"
	default:
		return "no backend is registered"
	}
	reasons := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		reasons[i] = err.Error()
	}
	return "no backend works on this machine: " + strings.Join(reasons, "; ")
}

// Unsupported reports whether there is no backend for this system at all.
func (e *NoBackendError) Unsupported() bool {
	return len(e.Errs) == 0 && e.OS != "" && e.OS != "linux" && e.OS != "darwin"
}

// Unwrap returns the reasons.
func (e *NoBackendError) Unwrap() []error { return e.Errs }
