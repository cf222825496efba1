package gitscripts

import "slices"

// Attacks leave something that git outside would run. None may succeed.
var Attacks = slices.Concat(hookAttacks, configAttacks, shapeAttacks, elsewhereAttacks)

const userHook = `printf '#!/bin/sh\nexit 0\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
`

// userSubmodule and userWorktree are what the victim has made beforehand.
const (
	userSubmodule = `git -c protocol.file.allow=always submodule --quiet add ./upstream sub; git commit -qm sub
`
	userWorktree = `git worktree add -q wt
`
)

// commitMark makes a commit without a work tree whose only file is the mark, in
// the git directory $G.
const commitMark = `
commit_mark() {
	blob=$(echo x | git --git-dir="$G" hash-object -w --stdin)
	tree=$(printf '100644 blob %s\tmark\n' "$blob" | git --git-dir="$G" mktree)
	git --git-dir="$G" update-ref refs/heads/main "$(git --git-dir="$G" commit-tree -m x "$tree")"
}
`

var hookAttacks = []Script{
	{Name: "hook written", Inside: `plant .git/hooks/pre-commit`},
	{Name: "hook overwritten", Setup: userHook, Inside: `plant .git/hooks/pre-commit`},
	{Name: "hook truncated and appended", Setup: userHook, Inside: `truncate -s 0 .git/hooks/pre-commit; plant x; cat x >>.git/hooks/pre-commit`},
	{Name: "hook renamed into place", Inside: `plant x; mv x .git/hooks/pre-commit`},
	{Name: "hook replaced", Setup: userHook, Inside: `plant x; rm -f .git/hooks/pre-commit; mv x .git/hooks/pre-commit`},
	{Name: "hook linked", Inside: `plant x; ln x .git/hooks/pre-commit`},
	{Name: "hook linked out and written", Setup: userHook, Inside: `ln .git/hooks/pre-commit x; plant x`},
	{Name: "hook as a symbolic link", Inside: `plant x; ln -s ../../x .git/hooks/pre-commit`},
	{Name: "hook made from a sample", Inside: `plant .git/hooks/x.sample; mv .git/hooks/x.sample .git/hooks/pre-commit`},
	{Name: "hook linked from a sample", Inside: `plant .git/hooks/x.sample; ln .git/hooks/x.sample .git/hooks/pre-commit`},
	{Name: "hook made from a temporary name of a sample", Inside: `plant .git/hooks/.pre-commit.sample.Ab12Cd; mv .git/hooks/.pre-commit.sample.Ab12Cd .git/hooks/pre-commit; ln .git/hooks/.pre-commit.sample.Ab12Cd .git/hooks/pre-commit`},
	{Name: "hook by a temporary name", Inside: `plant .git/hooks/.pre-commit.Ab12Cd; mv .git/hooks/.pre-commit.Ab12Cd .git/hooks/pre-commit`},
	{Name: "hooks swapped", Inside: `mv .git/hooks .git/old; mkdir .git/hooks; plant .git/hooks/pre-commit`},
	{Name: "hooks moved in", Inside: `rm -rf .git/hooks; mkdir h; plant h/pre-commit; mv h .git/hooks`},
	{Name: "hooks written under another name", Inside: `mv .git/hooks h; plant h/pre-commit; mv h .git/hooks`},
	{Name: "hooks as a symbolic link", Inside: `rm -rf .git/hooks; mkdir h; plant h/pre-commit; ln -s ../h .git/hooks`},
	{Name: "symbolic link of the user replaced", Setup: `rm -rf .git/hooks; mkdir ../out/h; ln -s "$WS/../out/h" .git/hooks`, Inside: `rm -f .git/hooks; mkdir .git/hooks; plant .git/hooks/pre-commit`},
	{Name: "hooks of a new repository", Inside: `git init -q n; plant n/.git/hooks/pre-commit; plant n/.git/hooks/post-index-change`},
	{Name: "hooks before there is a repository", Inside: `mkdir -p n/.git/hooks; plant n/.git/hooks/pre-commit; git init -q n`},
	{Name: "hooks in wait for git init", Inside: `mkdir -p n/.git/hooks; plant n/.git/hooks/pre-commit`, Victim: `cd "$WS/n"; git init; git commit --allow-empty -m x`},
	{Name: "hooks of a submodule", Setup: userSubmodule, Inside: `plant .git/modules/sub/hooks/pre-commit`},
	{Name: "hooks from a template", Inside: `mkdir -p t/hooks; plant t/hooks/pre-commit; git init -q --template=t n; git init -q n`},
}

var configAttacks = []Script{
	{Name: "config appended", Inside: `plant payload; evil >>.git/config`},
	{Name: "config by git", Inside: `plant payload; git config core.fsmonitor "$WS/payload"`},
	{Name: "config by clone", Inside: `plant payload; git clone -q -c core.fsmonitor="$WS/payload" upstream copy`},
	{Name: "config renamed into place", Inside: `plant payload; cp .git/config c; evil >>c; mv c .git/config`},
	{Name: "config replaced", Inside: `plant payload; cp .git/config c; evil >>c; rm -f .git/config; mv c .git/config`},
	{Name: "config linked", Inside: `plant payload; cp .git/config c; evil >>c; rm -f .git/config; ln c .git/config`},
	{Name: "config linked out and written", Inside: `plant payload; ln .git/config c; evil >>c`},
	{Name: "config as a symbolic link", Inside: `plant payload; cp .git/config c; evil >>c; rm -f .git/config; ln -s ../c .git/config`},
	{Name: "config renamed as a symbolic link", Inside: `plant payload; cp .git/config c; evil >>c; ln -s ../c l; mv -T l .git/config`},
	{Name: "config kept open across a rename", Inside: `plant payload; cp .git/config .git/config.lock; exec 3>>.git/config.lock; mv .git/config.lock .git/config; evil >&3`},
	{Name: "config kept open across a link", Inside: `plant payload; git clone -q upstream n; cd n; cp .git/config c; exec 3>>c; rm -f .git/config; ln c .git/config; evil >&3`},
	{Name: "hooks path", Inside: `mkdir h; plant h/pre-commit; git config core.hooksPath "$WS/h"`},
	{Name: "include", Inside: `plant payload; evil >e.cfg; git config include.path "$WS/e.cfg"`},
	{Name: "include with a condition", Inside: `plant payload; evil >e.cfg; git config "includeIf.gitdir:$WS/.path" "$WS/e.cfg"`},
	{Name: "external diff", Inside: `plant payload; git config diff.external "$WS/payload"; echo x >>file`},
	{Name: "clean filter", Inside: `plant payload; git config filter.x.clean "$WS/payload"; echo '* filter=x' >.gitattributes; echo x >>file`},
	{Name: "textconv", Inside: `plant payload; git config diff.x.textconv "$WS/payload"; echo '* diff=x' >.gitattributes; echo x >>file`},
	{Name: "signing program", Inside: `plant payload; git config gpg.program "$WS/payload"; git config commit.gpgsign true`},
	{Name: "alias", Inside: `plant payload; git config alias.st "!$WS/payload"`, Victim: `git st`},
	{Name: "editor", Inside: `plant payload; git config core.editor "$WS/payload"`, Victim: `unset GIT_EDITOR; git commit --allow-empty`},
	{Name: "remote helper", Inside: `git config remote.x.url "ext::touch $MARK"`, Victim: `GIT_ALLOW_PROTOCOL=ext git fetch x`},
	{Name: "remote helper as a branch's remote", Inside: `git config branch.main.remote "ext::touch $MARK"; git config branch.main.merge refs/heads/main`, Victim: `GIT_ALLOW_PROTOCOL=ext git fetch`},
	{Name: "program of the other side", Inside: `plant payload; git remote add x ./upstream; git config remote.x.uploadpack "$WS/payload"`, Victim: `git fetch x`},
	{Name: "update of a submodule", Setup: userSubmodule, Inside: `plant payload; git config submodule.sub.update "!$WS/payload"; git -C upstream commit -q --allow-empty -m x`, Victim: `cd "$WS"; git -C sub checkout -q --orphan x; git -C sub commit -q --allow-empty -m x; git -c protocol.file.allow=always submodule update`},
	{Name: "worktree's config", Inside: `plant payload; git config extensions.worktreeConfig true; git config --worktree core.fsmonitor "$WS/payload"`},
	{Name: "worktree's config written", Inside: `plant payload; git config extensions.worktreeConfig true; evil >.git/config.worktree`},
	{Name: "config of a submodule", Setup: userSubmodule, Inside: `plant payload; evil >>.git/modules/sub/config; git -C sub config core.fsmonitor "$WS/payload"`},
	{Name: "config of a linked worktree", Setup: userWorktree, Inside: `plant payload; git config extensions.worktreeConfig true; evil >.git/worktrees/wt/config.worktree`},
	{Name: "attributes", Inside: `echo '* filter=x' >.git/info/attributes`, Check: `test ! -e .git/info/attributes`, Quiet: true},
	{Name: "attributes by another info", Inside: `rm -rf .git/info; mkdir i; echo '* filter=x' >i/attributes; mv i .git/info || ln -s ../i .git/info`, Check: `test ! -e .git/info/attributes`, Quiet: true},
	{Name: "own config and hooks removed", Setup: userHook, Inside: `rm -rf .git/hooks .git/config; mv .git x; mv .git/config x`, Check: `test -x .git/hooks/pre-commit; test -e .git/config`, Quiet: true},
}
