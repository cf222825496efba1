package gitscripts

// Sessions are what people and agents do with git. Each must work.
var Sessions = []Script{
	session("status", `git status --porcelain; git diff; git log --oneline; git blame file`),
	session("commit", `echo x >new; git add new; git commit -qm new; git commit -q --amend -m newer; git show HEAD:new`),
	session("branch", `git branch b; git branch -m b c; git branch -d c; git checkout -q -b d; git switch -q main`),
	session("tracking", `git remote add up ./upstream; git fetch -q up; git checkout -q -b t --track up/topic; test "$(git config branch.t.remote)" = up`),
	session("tracking undone", `git remote add up ./upstream; git fetch -q up; git branch -q t up/topic; git branch -u up/main t; git branch --unset-upstream t; git remote remove up`),
	session("remote", `git remote add o https://example.org/x.git; git remote set-url o ssh://git@example.org/x.git; git remote rename o p; git remote set-head p main || true; git remote -v`),
	session("fetch and push", `git init -q --bare bare.git; git remote add b ./bare.git; git push -q -u b main; git fetch -q --prune b; git pull -q; git push -q b main:x; git push -q b :x`),
	session("stash", `echo x >>file; git stash -q; git stash pop -q; git stash push -q -m m; git stash drop -q`),
	session("merge", `git checkout -q -b m HEAD~1; echo m >m; git add m; git commit -qm m; git checkout -q main; git merge -q -m merged m`),
	session("merge with conflict", `git checkout -q -b m HEAD~1; echo m >>file; git commit -qam m; git checkout -q main; ! git merge -q m; git checkout --ours file; git add file; git commit -qm merged`),
	session("rebase", `git checkout -q -b r HEAD~1; echo r >r; git add r; git commit -qm r; git rebase -q main; git rebase -q -i --autosquash HEAD~1`),
	session("rebase with exec", `git checkout -q -b r HEAD~1; echo r >r; git add r; git commit -qm r; git rebase -q -x true main`),
	session("cherry-pick", `git checkout -q -b c; echo c >c; git add c; git commit -qm c; git checkout -q main; git cherry-pick c; git revert --no-edit HEAD`),
	session("reset", `git reset -q --hard HEAD~1; git reset -q --soft HEAD@{1}; git restore --staged file; git clean -qfd`),
	session("tag", `git tag t; git tag -a -m a u; git tag -d t; git describe`),
	session("bisect", `git bisect start HEAD HEAD~1; git bisect run true || true; git bisect reset`),
	session("gc", `git gc -q; git repack -qad; git prune; git fsck; git pack-refs --all; git reflog expire --all; git maintenance run`),
	session("notes", `git notes add -m n; git notes show`),
	session("am", `git format-patch -q -1; git reset -q --hard HEAD~1; git am -q 0001-*.patch`),
	session("archive", `git archive HEAD | tar -t; git bundle create b.bundle main; git clone -q b.bundle from-bundle`),
	session("init", `git init -q fresh; cd fresh; echo x >x; git add x; git commit -qm x; git init -q .`),
	session("init bare", `git init -q --bare fresh.git; git push -q ./fresh.git main; git -C fresh.git log --oneline main`),
	session("init elsewhere", `git init -q --separate-git-dir meta fresh; cd fresh; echo x >x; git add x; git commit -qm x`),
	session("init sha256", `git init -q --object-format=sha256 fresh; cd fresh; echo x >x; git add x; git commit -qm x`),
	session("clone", `git clone -q upstream copy; cd copy; echo x >x; git add x; git commit -qm x; git pull -q`),
	session("clone bare", `git clone -q --bare upstream copy.git; git clone -q --mirror upstream mirror.git; git -C mirror.git remote update`),
	session("clone shallow", `git clone -q --depth 1 --single-branch "file://$WS/upstream" copy; git -C copy fetch -q --unshallow || true`),
	session("clone partial", `git -C upstream config uploadpack.allowFilter true; git clone -q --filter=blob:none "file://$WS/upstream" copy; git -C copy log -p`),
	session("clone with reference", `git clone -q --reference upstream upstream copy; git -C copy log`),
	session("clone and remove", `git clone -q upstream copy; rm -rf copy; test ! -e copy`),
	session("clone failed", `! git clone -q ./nothing copy; test ! -e copy`),
	session("worktree", `git worktree add -q ../ws/wt; cd wt; echo w >w; git add w; git commit -qm w; cd ..; git worktree list; git worktree move wt wu; git worktree lock wu; git worktree unlock wu; git worktree remove wu`),
	session("worktree prune", `git worktree add -q wt; rm -rf wt; git worktree prune; test ! -e .git/worktrees/wt`),
	session("sparse checkout", `git sparse-checkout set x; git sparse-checkout add y; git sparse-checkout disable`),
	session("worktree of a sparse checkout", `git sparse-checkout set x; git worktree add -q wt; git -C wt sparse-checkout list; git worktree remove wt`),
	session("submodule", `git -c protocol.file.allow=always submodule --quiet add ./upstream sub; git commit -qm sub; git submodule status; cd sub; echo s >s; git add s; git commit -qm s; cd ..; git add sub; git commit -qm s; git submodule deinit -q -f sub; git rm -q sub; rm -rf .git/modules/sub`),
	session("submodule update", `git -c protocol.file.allow=always submodule --quiet add ./upstream a/b; git commit -qm sub; git clone -q . copy; cd copy; git -c protocol.file.allow=always submodule --quiet update --init --recursive; git -C a/b log; git submodule --quiet sync; git -c protocol.file.allow=always submodule --quiet update --remote; git -C a/b checkout -q -f HEAD; test -e a/b/up`),
	session("clone with submodules", `git -c protocol.file.allow=always submodule --quiet add ./upstream sub; git commit -qm sub; git -c protocol.file.allow=always clone -q --recurse-submodules . copy; cd copy; git checkout -q --recurse-submodules HEAD~1; git checkout -q --recurse-submodules main; test -e sub/up; git status --porcelain`),
	session("config", `git config user.name N; git config user.email n@example.org; git config pull.rebase true; git config --unset pull.rebase; git config push.autoSetupRemote true; git config --get user.name`),
	session("rename a repository", `git clone -q upstream copy; mv copy moved; cd moved; echo x >x; git add x; git commit -qm x; mv .git meta; echo 'gitdir: meta' >.git; git status --porcelain`),
	session("ordinary files with such names", `mkdir -p src/hooks/deep etc/info; for f in src/hooks/useX.ts src/hooks/deep/y etc/config etc/HEAD etc/info/attributes etc/commondir; do echo x >$f; echo y >>$f; mv $f $f.new; mv $f.new $f; ln $f $f.2; rm $f; done`),
	session("copy of hooks and objects", copied+`git init -q again; cp -a copy/.git/hooks/. again/.git/hooks; cp -a copy/.git/objects/. again/.git/objects; test -e again/.git/hooks/pre-commit.sample; git -C again status --porcelain`),
	session("tar of a repository but its settings", copied+`git init -q again; tar -C copy --exclude=config -cf - . | tar -C again -xf -; test -e again/.git/hooks/pre-commit.sample; git -C again status --porcelain`),
	session("samples by temporary names", copied+`cd copy/.git/hooks; for t in .s.sample.Ab12Cd .unison.s.sample.0123abc.unison.tmp .syncthing.s.sample.tmp s.sample~ s.sample.tmp .s.sample.swp; do cp pre-commit.sample "$t"; mv "$t" s.sample; rm s.sample; done`),
	{Name: "rsync of a repository", Needs: []string{"rsync"}, WantOK: true, Inside: copied + `rsync -a copy/ again/; test -e again/.git/hooks/pre-commit.sample; rsync -a --inplace copy/ again/; rsync -ac --delete copy/ again/; git -C again status --porcelain`},
}

// copied is a clone with a sample of a hook, whatever templates git has here.
const copied = `git clone -q upstream copy; mkdir -p copy/.git/hooks; echo x >copy/.git/hooks/pre-commit.sample; `

func session(name, inside string) Script {
	return Script{Name: name, Inside: inside, WantOK: true}
}
