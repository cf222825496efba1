package importer

import (
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

const workspace = "urn:cloche:workspace"

// A place is a path of the settings in a form that a policy accepts.
type place struct {
	path string
	glob bool
	// wrong says why the path cannot be used, or is empty.
	wrong string
}

// placed converts a path to a form that a policy accepts. A relative path begins at the
// workspace. A trailing /** is removed, because every rule applies to everything below
// its path.
func placed(p string) place {
	rest := strings.TrimSuffix(strings.TrimSuffix(p, "/**"), "/")
	switch {
	case p == "" || strings.ContainsAny(p, "\x00\n"):
		return place{wrong: "the path is empty, or has a line break"}
	case rest == "" && p[0] == '/':
		rest = "/"
	case rest == "." || rest == "./" || rest == "" || rest == "**":
		rest = workspace
	case strings.HasPrefix(rest, "**/"):
		return place{path: rest, glob: true}
	case rest == "~" || strings.HasPrefix(rest, "~/") || strings.HasPrefix(rest, "$") || rest[0] == '/':
	case rest[0] == '~':
		return place{wrong: "it names another user's home; write the folder's full path"}
	default:
		rest = strings.TrimPrefix(rest, "./")
		if strings.HasPrefix(rest, "../") || rest == ".." {
			return place{wrong: "it leads out of the workspace; name it by its full path"}
		}
		rest = workspace + "/" + rest
	}
	return place{path: rest, glob: pathx.IsGlob(rest)}
}

// take adds a path to a list, or records why that is not possible. Patterns can only
// take access away.
func (b *builder) take(list string, p place, setting string) {
	opens := list == "paths.read" || list == "paths.write"
	switch {
	case p.wrong != "":
		b.no(setting, p.wrong)
	case p.glob && opens:
		b.no(setting, "a pattern cannot be opened; name the folder")
	default:
		if why := wrong(list, p.path); why != "" {
			b.no(setting, "the path cannot be read: "+why)
			return
		}
		b.add(list, p.path, setting)
	}
}

// host adds a host to a list, or records why that is not possible.
func (b *builder) host(list, host, setting string) {
	rule, err := policy.ParseHost(host)
	if err != nil {
		b.no(setting, err.Error())
		return
	}
	if why := wrong(list, rule.String()); why != "" {
		b.no(setting, why)
		return
	}
	b.add(list, rule.String(), setting)
}
