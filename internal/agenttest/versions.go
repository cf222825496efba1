package agenttest

import (
	_ "embed"
	"encoding/json"
)

//go:embed agents/package.json
var packageJSON []byte

// Versions are the versions of the agents, by the names of npm's packages.
func Versions() map[string]string {
	var p struct{ Dependencies map[string]string }
	if err := json.Unmarshal(packageJSON, &p); err != nil {
		panic("agents/package.json: " + err.Error())
	}
	return p.Dependencies
}
