package gitguard

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A check says what is wrong with the value of a setting.
type check func(value string) error

// harmlessSettings are those that a command may make, with what their values
// may be; a * stands for any subsection. None of them names a program, a file
// that is run or included, or a folder that git writes to. A setting that is
// not listed is refused: git gets new ones that run programs every year.
var harmlessSettings = sync.OnceValue(func() map[string]check {
	notesStrategy := oneOf("manual", "ours", "theirs", "union", "cat_sort_uniq")
	return map[string]check{
		"core.repositoryformatversion":        number,
		"core.filemode":                       boolean,
		"core.bare":                           boolean,
		"core.logallrefupdates":               boolOr("always"),
		"core.ignorecase":                     boolean,
		"core.precomposeunicode":              boolean,
		"core.symlinks":                       boolean,
		"core.autocrlf":                       boolOr("input"),
		"core.eol":                            oneOf("lf", "crlf", "native"),
		"core.safecrlf":                       boolOr("warn"),
		"core.sparsecheckout":                 boolean,
		"core.sparsecheckoutcone":             boolean,
		"core.untrackedcache":                 boolOr("keep"),
		"core.preloadindex":                   boolean,
		"core.splitindex":                     boolean,
		"core.trustctime":                     boolean,
		"core.checkstat":                      oneOf("default", "minimal"),
		"core.quotepath":                      boolean,
		"core.abbrev":                         either(number, oneOf("auto", "no")),
		"core.commitgraph":                    boolean,
		"core.multipackindex":                 boolean,
		"core.compression":                    number,
		"core.loosecompression":               number,
		"core.bigfilethreshold":               number,
		"core.whitespace":                     word,
		"user.name":                           text,
		"user.email":                          text,
		"user.useconfigonly":                  boolean,
		"add.ignoreerrors":                    boolean,
		"add.ignore-errors":                   boolean,
		"author.name":                         text,
		"author.email":                        text,
		"committer.name":                      text,
		"committer.email":                     text,
		"branch.*.remote":                     remote,
		"branch.*.pushremote":                 remote,
		"branch.*.merge":                      ref,
		"branch.*.rebase":                     boolOr("merges", "interactive"),
		"branch.*.description":                paragraphs,
		"branch.*.vscode-merge-base":          ref,
		"branch.*.gh-merge-base":              ref,
		"branch.autosetupmerge":               boolOr("always", "inherit", "simple"),
		"branch.autosetuprebase":              oneOf("never", "local", "remote", "always"),
		"branch.sort":                         ref,
		"remote.*.url":                        remote,
		"remote.*.pushurl":                    remote,
		"remote.*.fetch":                      ref,
		"remote.*.push":                       ref,
		"remote.*.tagopt":                     oneOf("--tags", "--no-tags"),
		"remote.*.prune":                      boolean,
		"remote.*.prunetags":                  boolean,
		"remote.*.mirror":                     boolOr("fetch", "push"),
		"remote.*.skipdefaultupdate":          boolean,
		"remote.*.skipfetchall":               boolean,
		"remote.*.promisor":                   boolean,
		"remote.*.partialclonefilter":         ref,
		"remote.*.followremotehead":           word,
		"remote.*.gh-resolved":                ref,
		"remote.pushdefault":                  remote,
		"submodule.*.url":                     remote,
		"submodule.*.active":                  boolean,
		"submodule.*.branch":                  ref,
		"submodule.*.update":                  oneOf("checkout", "rebase", "merge", "none"),
		"submodule.*.ignore":                  word,
		"submodule.*.fetchrecursesubmodules":  boolOr("on-demand"),
		"submodule.*.shallow":                 boolean,
		"submodule.active":                    ref,
		"submodule.recurse":                   boolean,
		"submodule.fetchjobs":                 number,
		"extensions.objectformat":             oneOf("sha1", "sha256"),
		"extensions.compatobjectformat":       oneOf("sha1", "sha256"),
		"extensions.refstorage":               oneOf("files", "reftable"),
		"extensions.partialclone":             remote,
		"extensions.worktreeconfig":           boolean,
		"extensions.relativeworktrees":        boolean,
		"extensions.preciousobjects":          boolean,
		"extensions.noop":                     word,
		"pull.rebase":                         boolOr("merges", "interactive"),
		"pull.ff":                             boolOr("only"),
		"push.default":                        oneOf("nothing", "current", "upstream", "tracking", "simple", "matching"),
		"push.autosetupremote":                boolean,
		"push.followtags":                     boolean,
		"push.recursesubmodules":              oneOf("check", "on-demand", "only", "no"),
		"fetch.prune":                         boolean,
		"fetch.prunetags":                     boolean,
		"fetch.parallel":                      number,
		"fetch.writecommitgraph":              boolean,
		"fetch.recursesubmodules":             boolOr("on-demand"),
		"merge.ff":                            boolOr("only"),
		"merge.conflictstyle":                 oneOf("merge", "diff3", "zdiff3"),
		"merge.renames":                       boolOr("copies"),
		"merge.renamelimit":                   number,
		"merge.autostash":                     boolean,
		"rebase.autostash":                    boolean,
		"rebase.autosquash":                   boolean,
		"rebase.updaterefs":                   boolean,
		"rebase.stat":                         boolean,
		"rebase.backend":                      oneOf("merge", "apply"),
		"rebase.missingcommitscheck":          oneOf("ignore", "warn", "error"),
		"rerere.enabled":                      boolean,
		"rerere.autoupdate":                   boolean,
		"commit.gpgsign":                      boolean,
		"commit.verbose":                      boolOr("0", "1", "2"),
		"tag.gpgsign":                         boolean,
		"tag.sort":                            ref,
		"diff.renames":                        boolOr("copies", "copy"),
		"diff.renamelimit":                    number,
		"diff.ignoresubmodules":               oneOf("none", "untracked", "dirty", "all"),
		"diff.algorithm":                      word,
		"diff.submodule":                      oneOf("short", "log", "diff"),
		"diff.mnemonicprefix":                 boolean,
		"diff.noprefix":                       boolean,
		"diff.colormoved":                     word,
		"diff.context":                        number,
		"status.showuntrackedfiles":           boolOr("no", "normal", "all"),
		"status.submodulesummary":             boolOr("0", "1"),
		"status.short":                        boolean,
		"status.branch":                       boolean,
		"stash.showincludeuntracked":          boolean,
		"stash.showpatch":                     boolean,
		"stash.showstat":                      boolean,
		"log.abbrevcommit":                    boolean,
		"log.date":                            word,
		"log.decorate":                        boolOr("short", "full", "auto"),
		"log.follow":                          boolean,
		"format.useautobase":                  boolOr("whenable"),
		"notes.displayref":                    ref,
		"notes.mergestrategy":                 notesStrategy,
		"notes.*.mergestrategy":               notesStrategy,
		"notes.rewritemode":                   oneOf("overwrite", "concatenate", "cat_sort_uniq", "ignore"),
		"notes.rewriteref":                    ref,
		"notes.*.amend":                       boolean, // notes.rewrite.amend
		"notes.*.rebase":                      boolean,
		"color.ui":                            boolOr("auto", "always", "never"),
		"advice.*":                            boolean,
		"init.defaultbranch":                  ref,
		"checkout.defaultremote":              remote,
		"worktree.guessremote":                boolean,
		"worktree.userelativepaths":           boolean,
		"sparse.expectfilesoutsideofpatterns": boolean,
		"index.version":                       number,
		"index.threads":                       boolOr("0", "1"),
		"index.sparse":                        boolean,
		"index.skiphash":                      boolean,
		"index.recordendofindexentries":       boolean,
		"index.recordoffsettable":             boolean,
		"feature.manyfiles":                   boolean,
		"gc.auto":                             number,
		"gc.autodetach":                       boolean,
		"gc.autopacklimit":                    number,
		"gc.writecommitgraph":                 boolean,
		"pack.depth":                          number,
		"pack.threads":                        number,
		"pack.window":                         number,
		"pack.windowmemory":                   number,
		"maintenance.auto":                    boolean,
		"maintenance.autodetach":              boolean,
		"receive.denynonfastforwards":         boolean,
		"receive.denydeletes":                 boolean,
		"receive.denycurrentbranch":           boolOr("ignore", "warn", "refuse", "updateinstead"),
		"uploadpack.allowfilter":              boolean,
		"uploadpack.allowanysha1inwant":       boolean,
		"uploadpack.allowtipsha1inwant":       boolean,
		"uploadpack.allowreachablesha1inwant": boolean,
		"http.postbuffer":                     number,
		"lfs.repositoryformatversion":         number,
	}
})

// harmless returns why a setting may not be added, or nil.
func (e entry) harmless() error {
	section, _, key, nested := e.split()
	name := section + "." + key
	switch {
	case nested:
		name = section + ".*." + key
	case section == "advice":
		name = "advice.*"
	}
	valid, listed := harmlessSettings()[name]
	switch {
	case !listed:
		return errors.New("this setting is not known to run nothing, or to lead git nowhere else")
	case e.continued:
		return errors.New("a value of more than one line")
	case e.bare:
		return valid("true")
	}
	if err := valid(e.value); err != nil {
		return fmt.Errorf("the value %q: %w", e.value, err)
	}
	return nil
}

// needless are settings that git writes and does without: the worktree of a
// submodule is the folder whose .git file led there. The setting itself would
// make git write to another folder once the git directory has been moved, or
// a symbolic link has been put at the place of the submodule.
func (e entry) needless(dir string) bool {
	return e.name == "core.worktree" && strings.Contains(dir+"/", "/.git/") && strings.Contains(dir, "/modules/")
}

func boolean(value string) error {
	return oneOf("true", "false", "yes", "no", "on", "off", "1", "0", "")(value)
}

func boolOr(words ...string) check { return either(boolean, oneOf(words...)) }

func either(one, other check) check {
	return func(value string) error {
		if one(value) == nil {
			return nil
		}
		return other(value)
	}
}

func oneOf(words ...string) check {
	return func(value string) error {
		if !slices.Contains(words, strings.ToLower(value)) {
			return errors.New("it is not one of those that are known")
		}
		return nil
	}
}

// number is a count, with a unit or not.
func number(value string) error {
	if _, err := strconv.ParseInt(strings.TrimRight(value, "kKmMgG"), 10, 64); err != nil {
		return errors.New("it is not a number")
	}
	return nil
}

// text is one line that git shows.
func text(value string) error {
	for _, r := range value {
		if r < ' ' || r == 0x7f {
			return errors.New("it has control characters")
		}
	}
	return nil
}

func paragraphs(value string) error {
	return text(strings.NewReplacer("\n", "", "\t", "").Replace(value))
}

// word is a short value of letters and signs that cannot be an option or a
// path.
func word(value string) error {
	for _, r := range value {
		if !isKeyByte(byte(r)) && r != ',' && r != '_' && r != '=' || r >= 0x80 {
			return errors.New("it has unexpected characters")
		}
	}
	return option(value)
}

// ref is the name of something in git: a branch, a refspec, a pattern.
func ref(value string) error {
	if err := option(value); err != nil {
		return err
	}
	return text(value)
}

// option refuses what a command line would take for an option.
func option(value string) error {
	if strings.HasPrefix(value, "-") {
		return errors.New("it would be taken for an option")
	}
	return nil
}

// schemes are the transports that git has itself. Others run git-remote-NAME.
var schemes = []string{"http", "https", "ssh", "git", "git+ssh", "ssh+git", "file"}

// remote is the name or address of a remote repository. A local path is fine:
// a repository that a command can make runs nothing.
func remote(value string) error {
	if err := ref(value); err != nil {
		return err
	}
	scheme, host, isURL := strings.Cut(value, "://")
	if isURL && !strings.ContainsAny(scheme, "/:@") {
		if !slices.Contains(schemes, strings.ToLower(scheme)) {
			return errors.New("the scheme is not one of git's own")
		}
		if err := option(host); err != nil {
			return err
		}
	}
	helper, _, isHelper := strings.Cut(value, "::")
	if isHelper && !strings.ContainsAny(helper, "/:@[") {
		return errors.New("it names a helper program")
	}
	if strings.Contains(value, "@-") {
		return errors.New("the host would be taken for an option")
	}
	return nil
}
