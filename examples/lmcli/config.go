package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cloche-dev/cloche/policy"
)

// config is the section "sandbox" of lmcli's own configuration file.
type config struct {
	Enabled            *bool    `yaml:"enabled"`
	RemapWorkspace     *bool    `yaml:"remapWorkspace"`
	RemapWorkspacePath *string  `yaml:"remapWorkspacePath"`
	Networking         string   `yaml:"networking"`
	BindDirs           []string `yaml:"bindDirs"`
	PersistDirs        []string `yaml:"persistDirs"`
	Hosts              string   `yaml:"hosts"`
}

// readConfig reads a configuration; no path gives the defaults.
func readConfig(path string) (config, error) {
	var file struct {
		Sandbox config `yaml:"sandbox"`
	}
	if path == "" {
		return file.Sandbox, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return config{}, err
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return config{}, fmt.Errorf("%s: %w", path, err)
	}
	return file.Sandbox, nil
}

// options are what the configuration changes about the default policy.
func (c config) options() ([]policy.Option, error) {
	var options []policy.Option
	if c.Enabled != nil {
		options = append(options, policy.Set("enabled", strconv.FormatBool(*c.Enabled)))
	}
	switch {
	case c.RemapWorkspace != nil && !*c.RemapWorkspace:
		options = append(options, func(p *policy.Policy) { p.Remap = "" })
	case c.RemapWorkspacePath != nil:
		options = append(options, policy.Set("remap", *c.RemapWorkspacePath))
	}
	if c.Hosts != "" {
		options = append(options, policy.Set("hosts", c.Hosts))
	}
	network, err := networkOptions(c.Networking)
	if err != nil {
		return nil, err
	}
	options = append(options, policy.WithPersist(c.PersistDirs...), policy.Set("binds", c.BindDirs...))
	return append(options, network...), nil
}

// networkOptions reads a mode. User-mode networking of lmcli reaches every host;
// "*" is every public one, so that the services of this machine and of its
// network stay out of reach.
func networkOptions(mode string) ([]policy.Option, error) {
	switch mode {
	case "", "host":
		return nil, nil
	case "none":
		return []policy.Option{policy.WithNetwork(policy.NetworkNone)}, nil
	case "user":
		return []policy.Option{policy.WithNetwork(policy.NetworkUser), policy.AllowHosts("*")}, nil
	}
	return nil, fmt.Errorf("networking: %q is not one of %s", mode, strings.Join([]string{"none", "host", "user"}, ", "))
}
