package cloche

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// protectGitSinks protects what the user's own git settings run from the
// workspace, such as a folder of hooks that core.hooksPath names, under a policy
// that protects such things at all. It only ever adds rules inside the workspace:
// elsewhere a rule could show something that the policy does not.
func (s *Session) protectGitSinks() {
	protects := func(r policy.PathRule) bool { return r.Protect }
	dir := filepath.Join(s.opts.workspace, ".git")
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || !slices.ContainsFunc(s.policy.Paths, protects) {
		return
	}
	paths, err := gitguard.Sinks(dir, s.opts.workspace)
	if err != nil {
		s.warnOfGitSinks(dir, err.Error())
	}
	for _, p := range paths {
		if p == s.opts.workspace || !pathx.Within(s.opts.workspace, p) {
			continue
		}
		if pathx.IsGlob(p) || strings.ContainsAny(p, "$\x00") {
			s.warnOfGitSinks(dir, "a rule cannot name "+strconv.Quote(p))
			continue
		}
		s.policy.Paths = append(s.policy.Paths, policy.PathRule{Path: p, Access: policy.Read, Protect: true, Optional: true,
			Reason: "git runs it, by your settings", Origin: policy.Origin{Layer: policy.LayerPreset, Source: dir + "/config"}})
	}
}

// warnOfGitSinks says that something which git may run is not protected: the
// settings are read more strictly here than by git.
func (s *Session) warnOfGitSinks(dir, why string) {
	s.opts.notices = append(s.opts.notices, plan.Notice{Kind: plan.NoticeWarning, Origin: policy.Origin{Layer: policy.LayerPreset, Source: dir + "/config"},
		Text: "programs that your git settings run from the workspace may not be protected: " + why + "; name them with --protect"})
}
