package resolve

import (
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/policy"
)

// F14: the homes of others are hidden with the caller's own secrets. In one that
// the workspace is in, only secrets are; folders for everybody stay.
func TestHomesOfOthers(t *testing.T) {
	s := machine()
	tree := s.FS.(host.Tree)
	for _, home := range []string{"bo", "cy", "linuxbrew"} {
		tree["/home/"+home+"/.ssh/id"] = "key"
		tree["/home/"+home+"/notes"] = "text"
	}
	tree["/home/cy/project/x"] = "text"
	s.Others = []string{"/home/bo", "/home/cy", "/home/linuxbrew", "/home/gone"}
	secret := rule(policy.Hidden, "~/.ssh")
	secret.Optional, secret.Origin = true, policy.Origin{Layer: policy.LayerPreset, Source: "preset secrets"}
	p := mustResolve(t, workspacePolicy(secret), Request{Workspace: "/home/cy/project"}, s)
	wantAccess(t, p, map[string]policy.Access{
		"/home/bo/notes": policy.Hidden, "/home/bo/.ssh/id": policy.Hidden, "/home/cy/notes": policy.Read, "/home/cy/.ssh/id": policy.Hidden,
		"/home/cy/project/x": policy.Write, "/home/linuxbrew/notes": policy.Read,
	})
	p = mustResolve(t, workspacePolicy(), Request{Workspace: "/home/cy/project"}, s)
	wantAccess(t, p, map[string]policy.Access{"/home/bo/notes": policy.Read})
}
