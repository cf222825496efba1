package policy

import "slices"

// A namedSecret is a preset for a secret.
type namedSecret struct {
	name   string
	secret Secret
}

// secretPresets returns the secrets of well-known tools, in the order of the documentation. They
// are no policy presets: a project's file may name those, and must not name secrets. It is a
// function, because the maps of a variable would be built at every start of cloche.
func secretPresets() []namedSecret {
	return []namedSecret{
		{"gh", Secret{
			Name: "GH_TOKEN", Hosts: []string{"api.github.com", "github.com", "uploads.github.com"},
			From:   []string{"env:GH_TOKEN", "env:GITHUB_TOKEN", "command:gh auth token"},
			Env:    map[string]string{"GITHUB_TOKEN": SecretToken},
			Files:  []SecretFile{{Path: "~/.config/gh/hosts.yml", Text: "github.com:\n    git_protocol: https\n    oauth_token: {secret}\n"}},
			Git:    "x-access-token",
			Reason: "gh, and git over HTTPS with GitHub",
		}},
		{"npm", Secret{
			Name: "NPM_TOKEN", Hosts: []string{"registry.npmjs.org"},
			Files:  []SecretFile{{Path: "~/.npmrc", Text: "//registry.npmjs.org/:_authToken={secret}\n", Variable: "NPM_CONFIG_USERCONFIG"}},
			Reason: "npm, pnpm and yarn with the registry of npm",
		}},
		{"pypi", Secret{
			Name: "PYPI_TOKEN", Hosts: []string{"upload.pypi.org"},
			Env:    map[string]string{"TWINE_USERNAME": "__token__", "TWINE_PASSWORD": SecretToken, "UV_PUBLISH_TOKEN": SecretToken},
			Files:  []SecretFile{{Path: "~/.pypirc", Text: "[pypi]\nusername = __token__\npassword = {secret}\n"}},
			Reason: "twine and uv with the Python package index",
		}},
		{"cargo", Secret{
			Name: "CARGO_REGISTRY_TOKEN", Hosts: []string{"crates.io"},
			Files:  []SecretFile{{Path: "~/.cargo/credentials.toml", Text: "[registry]\ntoken = \"{secret}\"\n"}},
			Reason: "cargo with crates.io",
		}},
		{"docker", Secret{
			Name: "DOCKER_TOKEN", Hosts: []string{"auth.docker.io", "registry-1.docker.io", "index.docker.io", "hub.docker.com"},
			Files:  []SecretFile{{Path: "~/.docker/config.json", Text: `{"auths":{"https://index.docker.io/v1/":{"auth":"{basic:$DOCKER_USERNAME}"}}}` + "\n", Variable: "DOCKER_CONFIG/"}},
			Pass:   []string{"DOCKER_USERNAME"},
			Reason: "tools that read Docker's config.json, such as skopeo, crane and podman, with Docker Hub",
		}},
		{"aws", Secret{
			Name: "AWS_SECRET_ACCESS_KEY", Hosts: []string{"*.amazonaws.com"}, Sign: "aws",
			Pass:   []string{"AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"},
			Reason: "AWS: requests are signed again outside",
		}},
		{"anthropic", Secret{
			Name: "ANTHROPIC_API_KEY", Hosts: []string{"api.anthropic.com"}, In: []string{"header X-Api-Key", "header Authorization"},
			Reason: "the models of Anthropic",
		}},
		{"openai", Secret{
			Name: "OPENAI_API_KEY", Hosts: []string{"api.openai.com"},
			Reason: "the models of OpenAI",
		}},
		{"gemini", Secret{
			Name: "GEMINI_API_KEY", Hosts: []string{"generativelanguage.googleapis.com"},
			From:   []string{"env:GEMINI_API_KEY", "env:GOOGLE_API_KEY"},
			In:     []string{"header X-Goog-Api-Key", "query key"},
			Reason: "the models of Google",
		}},
	}
}

// SecretPresets returns the names of the presets for secrets, sorted.
func SecretPresets() []string {
	var names []string
	for _, p := range secretPresets() {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

// secretPreset returns a preset for a secret.
func secretPreset(name string) (Secret, bool) {
	for _, p := range secretPresets() {
		if p.name == name {
			return p.secret, true
		}
	}
	return Secret{}, false
}
