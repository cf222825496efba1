package resolve

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A ruleSet is the path rules of a policy that commands are run under again and
// again, with what follows from their text and the home folder alone. Nothing of
// the machine is in it.
type ruleSet struct {
	rules []policy.PathRule // never change
	forms atomic.Pointer[ruleForms]
	// globs and absent are those of the last plan. The next one has mostly the
	// same, and then shares them: nobody may change a plan.
	globs   atomic.Pointer[[]plan.Glob]
	absent  atomic.Pointer[[]plan.Absent]
	excepts atomic.Pointer[map[policy.Layer][]string] // see builder.exempted
}

// sameExcepts returns a list of exempt folders of a layer, that of the last plan if
// it is the same: globs that share a list are compared quickly.
func (s *ruleSet) sameExcepts(layer policy.Layer, folders []string) []string {
	if s == nil {
		return folders
	}
	if m := s.excepts.Load(); m != nil && slices.Equal((*m)[layer], folders) {
		return (*m)[layer]
	}
	return folders
}

// ruleForms are the forms of rules for one home folder.
type ruleForms struct {
	home string
	list []ruleForm
}

// A ruleForm is what the text of a rule says about how its path is found.
type ruleForm struct {
	kind formKind
	glob bool // it holds for files that are made later, by a pattern
	// path is the expanded path, where the home folder is all that it takes.
	path string
}

type formKind uint8

const (
	formOther    formKind = iota // it has to be expanded
	formInHome                   // "~/rest"
	formAnywhere                 // "**/rest" of a rule that lasts
	formFound                    // see foundFiles
)

// maxRuleSets is how many sets of rules are kept: a process has few policies.
const maxRuleSets = 4

// ruleSets are the sets that are kept, the one that was used last first.
var ruleSets struct {
	mu   sync.Mutex
	list []*ruleSet
}

// Own returns a copy of path rules that nobody may change. Equal rules get the
// same copy: a policy has hundreds, and a program mostly one policy.
func Own(rules []policy.PathRule) []policy.PathRule {
	ruleSets.mu.Lock()
	defer ruleSets.mu.Unlock()
	i := slices.IndexFunc(ruleSets.list, func(s *ruleSet) bool { return slices.Equal(s.rules, rules) })
	if i < 0 {
		if len(ruleSets.list) < maxRuleSets {
			ruleSets.list = append(ruleSets.list, nil)
		}
		i = len(ruleSets.list) - 1
		ruleSets.list[i] = &ruleSet{rules: slices.Clip(slices.Clone(rules))}
	}
	s := ruleSets.list[i]
	copy(ruleSets.list[1:i+1], ruleSets.list[:i])
	ruleSets.list[0] = s
	return s.rules
}

// ownSet returns the set of rules that came from Own, or nil.
func ownSet(rules []policy.PathRule) *ruleSet {
	if len(rules) == 0 {
		return nil
	}
	ruleSets.mu.Lock()
	defer ruleSets.mu.Unlock()
	for _, s := range ruleSets.list {
		if len(s.rules) == len(rules) && &s.rules[0] == &rules[0] {
			return s
		}
	}
	return nil
}

// formsOf returns the forms of rules for a home folder, those of the set if it is
// known.
func (s *ruleSet) formsOf(rules []policy.PathRule, home string) []ruleForm {
	if s == nil {
		return newForms(rules, home)
	}
	if f := s.forms.Load(); f != nil && f.home == home {
		return f.list
	}
	f := &ruleForms{home, newForms(s.rules, home)}
	s.forms.Store(f)
	return f.list
}

// newForms makes the paths of all rules in one piece of memory: one for each of them
// would take longer than everything else that is done with most rules.
func newForms(rules []policy.PathRule, home string) []ruleForm {
	list := make([]ruleForm, len(rules))
	size := 0
	for i := range rules {
		list[i] = formOf(&rules[i])
		size += len(home) + 1 + len(rules[i].Path)
	}
	var text strings.Builder
	text.Grow(size)
	for i := range list {
		f := &list[i]
		start := text.Len()
		switch f.kind {
		case formAnywhere:
			text.WriteString("/")
			text.WriteString(rules[i].Path)
		case formInHome:
			text.WriteString(home)
			text.WriteString(rules[i].Path[1:])
		case formOther, formFound: // these have no path yet
		}
		f.path = text.String()[start:] // stays as it is: there is room for all
	}
	return list
}

// formOf returns the form of a rule without its path.
func formOf(r *policy.PathRule) ruleForm {
	f := ruleForm{glob: isPattern(r)}
	_, inHome := pathx.InHome(r.Path)
	switch {
	case r.Found:
		f.kind = formFound
	case lasting(r) && pathx.Anywhere(r.Path):
		f.kind = formAnywhere
	case inHome:
		f.kind = formInHome
	}
	return f
}

// A sharedList is a list that is being made, and is likely to be the one that was
// made the last time.
type sharedList[T any] struct {
	last  []T
	n     int // how many of last are in it
	own   []T // the list, if it is another one
	isOwn bool
}

// next returns the entry of the last list that is at the place of the next one, nil
// if there is none. Who finds it equal calls share, and else add: comparing is the
// caller's, so that what it compares with need not be on the heap.
func (l *sharedList[T]) next() *T {
	if l.isOwn || l.n == len(l.last) {
		return nil
	}
	return &l.last[l.n]
}

// share takes the entry over that next returned.
func (l *sharedList[T]) share() { l.n++ }

// add adds an entry; room is how many there may be.
func (l *sharedList[T]) add(v T, room func() int) {
	if !l.isOwn {
		l.isOwn = true
		l.own = append(make([]T, 0, max(room(), l.n+1)), l.last[:l.n]...)
	}
	l.own = append(l.own, v)
}

// list returns what was added; nobody may change it.
func (l *sharedList[T]) list() []T {
	if l.isOwn {
		return l.own
	}
	if l.n == 0 {
		return nil
	}
	return l.last[:l.n:l.n]
}

// keep lets the next list share this one.
func (l *sharedList[T]) keep(in *atomic.Pointer[[]T]) []T {
	list := slices.Clip(l.list())
	if l.isOwn {
		in.Store(&list)
	}
	return list
}

func lastOf[T any](in *atomic.Pointer[[]T]) []T {
	if p := in.Load(); p != nil {
		return *p
	}
	return nil
}

func sameGlob(a, b *plan.Glob) bool {
	return a.Pattern == b.Pattern && a.Access == b.Access && a.Optional == b.Optional && a.Reason == b.Reason && a.Origin == b.Origin &&
		sameFolders(a.ExceptUnder, b.ExceptUnder)
}

// sameFolders is quick for the lists that the patterns of a layer share.
func sameFolders(a, b []string) bool {
	if len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] {
		return true
	}
	return slices.Equal(a, b)
}
