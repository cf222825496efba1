package cloche

import (
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// protectGitSinks protects what the user's own git settings run from the
// workspace, such as a directory of hooks that core.hooksPath names, or a file in
// .git that is included. It only ever adds rules inside the workspace: elsewhere a
// rule could show something that the policy does not.
func (s *Session) protectGitSinks() {
	if s.opts.workspace == "" {
		return
	}
	found, err := gitguard.Sinks(s.opts.workspace, s.opts.environ())
	if err != nil {
		s.warnOfGitSinks(err.Error())
	}
	for _, p := range found.Paths {
		if p != s.opts.workspace && pathx.Within(s.opts.workspace, p) {
			s.protectGitSink(p, p)
		}
	}
	for _, p := range found.Anywhere {
		s.protectGitSink(p, "**/"+p)
	}
}

func (s *Session) protectGitSink(path, rule string) {
	if pathx.IsGlob(path) || strings.ContainsAny(path, "$\x00") {
		s.warnOfGitSinks("a rule cannot name " + strconv.Quote(path))
		return
	}
	s.policy.Paths = append(s.policy.Paths, policy.PathRule{Path: rule, Access: policy.Read, Protect: true, Optional: true,
		Reason: "git runs it, by your settings", Origin: gitSinksOrigin})
}

var gitSinksOrigin = policy.Origin{Layer: policy.LayerPreset, Source: "your git settings"}

// warnOfGitSinks says that something which git may run is not protected: the
// settings are read more strictly here than by git.
func (s *Session) warnOfGitSinks(why string) {
	s.opts.notices = append(s.opts.notices, plan.Notice{Kind: plan.NoticeWarning, Origin: gitSinksOrigin,
		Text: "programs that your git settings run from the workspace may not be protected: " + why + "; name them with --protect"})
}
