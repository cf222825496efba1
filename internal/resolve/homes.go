package resolve

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// sharedHomes are home folders in name only: programs for everybody are there.
var sharedHomes = []string{"linuxbrew"}

// findHomes hides the home folders of other people under a policy that hides the
// caller's own secrets. In one that the workspace is in only secrets are hidden:
// the work may need what lies around it.
func (b *builder) findHomes() {
	b.homes = slices.Clip(b.snap.Homes)
	secrets := slices.IndexFunc(b.policy.Paths, func(r policy.PathRule) bool {
		return r.Access == policy.Hidden && r.Origin.Layer == policy.LayerPreset && strings.HasPrefix(r.Path, "~/")
	})
	if secrets < 0 {
		return
	}
	for _, home := range b.snap.Others {
		switch {
		case pathx.Within(home, b.vars.Workspace) || pathx.Within(home, b.vars.Cwd) || pathx.Within(home, b.snap.Home):
			b.homes = append(b.homes, home)
		case !slices.Contains(sharedHomes, path.Base(home)):
			b.placeImplied(&policy.PathRule{Path: home, Access: policy.Hidden, Reason: "the home folder of somebody else",
				Origin: b.policy.Paths[secrets].Origin}, false)
		}
	}
}
