package engine

import (
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// protectGitSinks adds rules that protect files of the workspace which the user's own git
// settings execute, such as a directory of hooks that core.hooksPath names, or an included
// file in .git. It only adds rules for paths inside the workspace: elsewhere a rule could show
// a file that the policy hides.
func (e *Engine) protectGitSinks() {
	if e.config.Workspace == "" {
		return
	}
	found, err := gitguard.Sinks(e.config.Workspace, e.config.Environ())
	if err != nil {
		e.warnOfGitSinks(err.Error())
	}
	for _, p := range found.Paths {
		if p != e.config.Workspace && pathx.Within(e.config.Workspace, p) {
			e.protectGitSink(p, p)
		}
	}
	for _, p := range found.Anywhere {
		e.protectGitSink(p, "**/"+p)
	}
}

func (e *Engine) protectGitSink(path, rule string) {
	if pathx.IsGlob(path) || strings.ContainsAny(path, "$\x00") {
		e.warnOfGitSinks("a rule cannot name " + strconv.Quote(path))
		return
	}
	e.config.Policy.Paths = append(e.config.Policy.Paths, policy.PathRule{Path: rule, Access: policy.Read, Protect: true, Optional: true,
		Reason: "git runs it, by your settings", Origin: gitSinksOrigin})
}

var gitSinksOrigin = policy.Origin{Layer: policy.LayerPreset, Source: "your git settings"}

// warnOfGitSinks adds a notice that a file which git may execute is possibly not protected.
// This happens because cloche reads the settings more strictly than git does.
func (e *Engine) warnOfGitSinks(why string) {
	e.config.Notices = append(e.config.Notices, plan.Notice{Kind: plan.NoticeWarning, Origin: gitSinksOrigin,
		Text: "programs that your git settings run from the workspace may not be protected: " + why + "; name them with --protect"})
}
