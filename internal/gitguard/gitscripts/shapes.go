package gitscripts

// shapeAttacks make a folder into a git directory, in an order or under a name
// of their own.
var shapeAttacks = []Script{
	{Name: "nested repository as a link of the index", Inside: `plant payload; git init -q n; cd n; git commit -q --allow-empty -m x; evil >>.git/config; git config core.fsmonitor "$WS/payload"; cd ..; git add n; git commit -qm n`},
	{Name: "git folder by hand", Inside: `plant payload; mkdir -p n/.git/objects n/.git/refs; evil >n/.git/config; echo ref: refs/heads/main >n/.git/HEAD`},
	{Name: "folder renamed to .git", Inside: `plant payload; mkdir -p n/x/objects n/x/refs; evil >n/x/config; mv n/x n/.git; echo ref: refs/heads/main >n/.git/HEAD`},
	{Name: "whole git folder renamed to .git", Inside: `plant payload; mkdir -p n/x; evil >n/x/config; mkdir n/x/objects n/x/refs; echo ref: refs/heads/main >n/x/HEAD; mv n/x n/.git`},
	{Name: "config kept open while renamed to .git", Inside: `plant payload; mkdir -p n/x; printf '[core]\n' >n/x/config; exec 3>>n/x/config; mv n/x n/.git; mkdir n/.git/objects n/.git/refs; echo ref: refs/heads/main >n/.git/HEAD; evil >&3`},
	{Name: "bare repository, config first", Inside: bareFirst + `mkdir b/objects b/refs; echo ref: refs/heads/main >b/HEAD`},
	{Name: "bare repository, objects last", Inside: bareFirst + `mkdir b/refs; echo ref: refs/heads/main >b/HEAD; mkdir b/objects`},
	{Name: "bare repository, refs renamed in", Inside: bareFirst + `mkdir b/objects r; echo ref: refs/heads/main >b/HEAD; mv r b/refs`},
	{Name: "bare repository, HEAD renamed in", Inside: bareFirst + `mkdir b/objects b/refs; echo ref: refs/heads/main >h; mv h b/HEAD`},
	{Name: "bare repository, HEAD linked in", Inside: bareFirst + `mkdir b/objects b/refs; echo ref: refs/heads/main >h; ln h b/HEAD`},
	{Name: "bare repository, HEAD as a symbolic link", Inside: bareFirst + `mkdir b/objects b/refs; ln -s refs/heads/main b/HEAD`},
	{Name: "bare repository, objects as a symbolic link", Inside: bareFirst + `mkdir b/refs; echo ref: refs/heads/main >b/HEAD; ln -s ../.git/objects b/objects`},
	{Name: "bare repository, config afterwards", Inside: `plant payload; mkdir -p b/objects b/refs; echo ref: refs/heads/main >b/HEAD; ` + bareConfig},
	{Name: "bare repository, config kept open", Inside: `plant payload; mkdir b; printf '[core]\n' >b/config; exec 3>>b/config; mkdir b/objects b/refs; echo ref: refs/heads/main >b/HEAD; printf '\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "%s/payload"\n' "$WS" >&3`},
	{Name: "bare repository, made unrecognisable for a while", Inside: `plant payload; git init -q --bare b; mv b/HEAD b/h; mv b/objects b/o; rm -f b/config; ` + bareConfig + `; mv b/h b/HEAD; mv b/o b/objects`},
	{Name: "bare repository with hooks", Inside: `git init -q --bare b; plant b/hooks/pre-receive; plant b/hooks/reference-transaction`, Victim: `git push "$WS/b" main`},
	{Name: "git file leads to a folder of any name", Inside: bareFirst + `mkdir n b/objects b/refs; echo ref: refs/heads/main >b/HEAD; echo "gitdir: $WS/b" >n/.git`},
	{Name: "git file leads to a repository", Inside: `plant payload; git init -q --bare b; git -C b config core.bare false; evil >>b/config; mkdir n; echo "gitdir: $WS/b" >n/.git`},
	{Name: ".git as a symbolic link", Inside: bareFirst + `mkdir n b/objects b/refs; echo ref: refs/heads/main >b/HEAD; ln -s ../b n/.git`},
	{Name: "closed while renamed to .git", Inside: `plant payload; mkdir -p n/x/hooks; evil >n/x/config; plant n/x/hooks/pre-commit; chmod 0 n/x; mv n/x n/.git; chmod 755 n/.git n/x`, Victim: initNested},
	{Name: "hooks closed while renamed to .git", Inside: `mkdir -p n/x/hooks; plant n/x/hooks/pre-commit; chmod 0 n/x/hooks; mv n/x n/.git; chmod 755 n/.git/hooks n/x/hooks`, Victim: initNested},
	{Name: "config closed while renamed to .git", Inside: `plant payload; mkdir -p n/x; evil >n/x/config; chmod 0 n/x/config; mv n/x n/.git; chmod 644 n/.git/config n/x/config`, Victim: initNested},
	{Name: ".git as a symbolic link in wait for git init", Inside: `plant payload; mkdir -p n d/hooks; evil >d/config; plant d/hooks/pre-commit; ln -s ../d n/.git`, Victim: initNested},
	{Name: ".git as a symbolic link, then filled", Inside: `plant payload; mkdir -p n d; ln -s ../d n/.git; evil >d/config; mkdir d/hooks; plant d/hooks/pre-commit`, Victim: initNested},
	{Name: ".git as a symbolic link renamed into place", Inside: `plant payload; mkdir -p n d; evil >d/config; ln -s ../d n/x; mv -T n/x n/.git`, Victim: initNested},
	{Name: ".git as a hard link to a symbolic link", Inside: `plant payload; mkdir -p n d; evil >d/config; ln -s ../d n/x; ln -P n/x n/.git`, Victim: initNested},
	{Name: ".git as a symbolic link to one that is no repository for a while", Inside: `plant payload; git init -q --bare d; mkdir n; ln -s ../d n/.git; mv d/HEAD h; mv d/objects o; rm -f d/config; evil >d/config`, Victim: initNested},
	{Name: "own repository replaced", Inside: `plant payload; mv .git old; cp -r old .git; evil >>.git/config`},
	{Name: "own repository without HEAD", Inside: `plant payload; mv .git/HEAD h; evil >>.git/config; mv h .git/HEAD`},
	{Name: "own repository under another name", Inside: `plant payload; mv .git x; mv x/HEAD h; mv x/refs r; evil >>x/config; mv h x/HEAD; mv r x/refs; mv x .git`},
	{Name: "repository beside renamed in part by part", Inside: `plant payload; mkdir n; git init -q n/a; mkdir n/b; evil >n/b/config; for f in HEAD objects refs; do mv n/a/.git/$f n/b/; done; rm -rf n/a; mv n/b n/.git`},
}

const (
	// initNested is a user who makes a repository in a directory of the workspace.
	initNested = `cd "$WS/n" && git init && git status && git commit --allow-empty -m x`

	bareConfig = `printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "%s/payload"\n' "$WS" >>b/config`
	bareFirst  = `plant payload; mkdir b; ` + bareConfig + `; `
)

// elsewhereAttacks lead git to another folder.
var elsewhereAttacks = []Script{
	{Name: "commondir", Inside: `plant payload; mkdir e; cp -r .git/objects .git/refs e; cp .git/config e; evil >>e/config; echo "$WS/e" >.git/commondir`},
	{Name: "commondir renamed into place", Inside: `plant payload; mkdir e; cp -r .git/objects .git/refs e; cp .git/config e/config; evil >>e/config; echo "$WS/e" >c; mv c .git/commondir`},
	{Name: "commondir before HEAD", Inside: `plant payload; mkdir -p e n/b; evil >e/config; mkdir e/objects e/refs; echo "$WS/e" >n/b/commondir; echo ref: refs/heads/main >n/b/HEAD; echo gitdir: b >n/.git`},
	{Name: "commondir of a linked worktree", Setup: userWorktree, Inside: `plant payload; mkdir e; cp -r .git/objects .git/refs e; cp .git/config e; evil >>e/config; echo "$WS/e" >.git/worktrees/wt/commondir`},
	{Name: "commondir of a linked worktree replaced", Setup: userWorktree, Inside: `plant payload; mkdir e; cp -r .git/objects .git/refs e; cp .git/config e; evil >>e/config; rm -f .git/worktrees/wt/commondir; echo "$WS/e" >.git/worktrees/wt/commondir`},
	{Name: "commondir of a new worktree", Inside: `plant payload; mkdir e; evil >e/config; mkdir e/objects e/refs; mkdir -p .git/worktrees/w n; exec 3>.git/worktrees/w/commondir; echo "$WS/e" >&3; echo ref: refs/heads/main >.git/worktrees/w/HEAD; echo "gitdir: $WS/.git/worktrees/w" >n/.git`},
	{Name: "worktree entry moved below settings", Setup: userWorktree, Inside: `plant payload; mkdir -p e/a; evil >e/config; mkdir e/objects e/refs; mv .git/worktrees/wt e/a/b; mkdir n; echo "gitdir: $WS/e/a/b" >n/.git`},
	{Name: "work tree elsewhere", Inside: `G=.git; ` + commitMark + `commit_mark; git config core.worktree "$(dirname "$MARK")"`},
	{Name: "work tree elsewhere after a move", Inside: `git init -q --bare .git/modules/x; G=.git/modules/x; ` + commitMark + `commit_mark; git --git-dir=$G config core.bare false; git --git-dir=$G config core.worktree ../../../out; mkdir a; mv .git/modules/x a/m`},
	{Name: "work tree elsewhere through a symbolic link", Inside: `git init -q --bare .git/modules/x; G=.git/modules/x; ` + commitMark + `commit_mark; git --git-dir=$G config core.bare false; git --git-dir=$G config core.worktree ../../../x; ln -s "$(dirname "$MARK")" x`},
}
