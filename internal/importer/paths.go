package importer

import (
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

const workspace = "urn:cloche:workspace"

// A place is where a path of the settings leads, in the forms of a policy.
type place struct {
	path string
	glob bool
	// wrong is why the path cannot be taken.
	wrong string
}

// placed puts a path into the forms of a policy. A relative one begins at the
// workspace; a trailing /** says what every rule says, that it is about all below.
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

// take adds a path to a list, or says why it cannot be there. Globs stand only for
// what is taken away.
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

// host adds a host to a list, or says why it cannot be there.
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
