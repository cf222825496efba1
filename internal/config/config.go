// Package config finds the policy files that apply to a workspace and layers
// them, with flags and the session's switch on top, into one policy. It knows
// where each part comes from, and which project files the user has trusted.
package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cloche-dev/cloche/internal/ownfile"
	"github.com/cloche-dev/cloche/policy"
)

// ProjectFileName is the project's policy file, found upwards from the workspace.
const ProjectFileName = ".cloche.yaml"

// UserFileName is the user's policy file in the configuration folder.
const UserFileName = "policy.yaml"

// Options say where to look and what the command line adds.
type Options struct {
	// Workspace is the absolute folder where the search for a project file starts.
	Workspace string
	// Home ends that search; empty is the user's home folder.
	Home string
	// UserFile is the user's policy file. Empty is UserFileName in ConfigDir,
	// which may be missing; a file that is named here may not.
	UserFile  string
	ConfigDir string
	// DataDir holds the trust store.
	DataDir string
	// NoProject leaves the project's file out.
	NoProject bool
	// Without is a project's file that is left out, because another one is about
	// to take its place.
	Without string
	// PolicyFiles are further policies for this command, lowest first.
	PolicyFiles []string
	// Capabilities is a file with a capability declaration.
	Capabilities string
	// Command is what the flags say.
	Command *policy.Document
	// Session is the run-time switch: true is on, false is off, nil is not set.
	Session *bool
}

// Loaded is the outcome of Load.
type Loaded struct {
	Policy policy.Policy
	// Ignored is what an untrusted project file asked for and did not get.
	Ignored []policy.Ignored
	// Files are the files that were read, lowest layer first.
	Files []File
}

// A File is a policy file that was read.
type File struct {
	// Path is absolute. For a project file its folder has no symbolic links.
	Path  string
	Layer policy.Layer
	// Trusted files may loosen the policy. Why says why a file is not trusted.
	Trusted bool
	Why     string
	// SHA256 is of the very bytes that were parsed, in hex.
	SHA256 string
}

// Load reads all files and merges them with the flags. All errors that are
// found are joined.
func Load(opts Options) (Loaded, error) {
	l := &loader{opts: opts, trust: OpenTrust(opts.DataDir)}
	l.userFile()
	l.projectFiles()
	l.commandFiles()
	l.flags()
	if err := errors.Join(l.errs...); err != nil {
		return Loaded{Files: l.files}, err
	}
	p, ignored, err := policy.Merge(l.layers...)
	if err == nil {
		err = p.Validate()
	}
	return Loaded{Policy: p, Ignored: append(l.ignored, ignored...), Files: l.files}, err
}

type loader struct {
	opts   Options
	trust  *TrustStore
	layers []policy.Layered
	files  []File
	errs   []error
	// ignored is what was left out before anything was merged.
	ignored []policy.Ignored
}

// add adds a document that was read from a file, or else the error.
func (l *loader) add(doc *policy.Document, err error, f File) {
	l.files = append(l.files, f)
	if err != nil {
		l.fail(err)
		return
	}
	l.layers = append(l.layers, policy.Layered{Doc: doc, Layer: f.Layer, Untrusted: !f.Trusted})
}

func (l *loader) fail(err error) { l.errs = append(l.errs, err) }

func (l *loader) userFile() {
	path, named := l.opts.UserFile, l.opts.UserFile != ""
	if !named {
		if l.opts.ConfigDir == "" {
			return
		}
		path = filepath.Join(l.opts.ConfigDir, UserFileName)
	}
	content, err := ownfile.Read(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && !named:
		return
	case err != nil:
		l.fail(ownfile.Describe("user policy", path, err))
		return
	}
	f := File{Path: path, Layer: policy.LayerUser, Trusted: true, SHA256: content.Sum()}
	// Not an error: sudo that keeps HOME meets another user's file, and could
	// run nothing at all.
	if why := content.Exposed(); why != "" {
		f.Trusted, f.Why = false, why+", so it may only tighten the policy"
	}
	doc, err := policy.Parse(path, content.Data)
	l.add(doc, err, f)
}

func (l *loader) projectFiles() {
	if l.opts.NoProject || l.opts.Workspace == "" {
		return
	}
	files, err := FindProjects(l.opts.Workspace, l.opts.Home)
	if err != nil {
		l.fail(err)
	}
	// The outermost first: a nearer one is more specific.
	for i, path := range slices.Backward(files) {
		if path == l.opts.Without {
			continue
		}
		if i > 0 && strangers(path) {
			l.ignored = append(l.ignored, policy.Ignored{Text: "the project policy of another user above the workspace is left out",
				Origin: policy.Origin{Layer: policy.LayerProject, Source: path, Untrusted: true}})
			continue
		}
		l.projectFile(path)
	}
}

func (l *loader) projectFile(path string) {
	content, err := ownfile.ReadWithin(path)
	if err != nil {
		l.fail(fmt.Errorf("%w; remove it, or run with --no-project", ownfile.Describe("project policy", path, err)))
		return
	}
	f := File{Path: path, Layer: policy.LayerProject, SHA256: content.Sum()}
	if why := content.Exposed(); why != "" {
		f.Why = why + ", so it may only tighten the policy"
	} else if f.Trusted, err = l.trust.IsTrusted(path, content.Data); err != nil {
		l.fail(err)
		return
	} else if !f.Trusted {
		f.Why = "this content is not trusted, so it may only tighten the policy; read it, then run cloche policy trust"
	}
	doc, err := policy.ParseIn(path, folderOf(path), content.Data)
	l.add(doc, err, f)
}

// commandFiles reads the files that flags name. Naming a file on the command
// line is trusting it.
func (l *loader) commandFiles() {
	for _, name := range l.opts.PolicyFiles {
		l.commandFile("--policy", name, func(path string, data []byte) (*policy.Document, error) {
			return policy.ParseIn(path, folderOf(path), data)
		})
	}
	if l.opts.Capabilities != "" {
		l.commandFile("capabilities", l.opts.Capabilities, policy.ParseCapabilities)
	}
}

func (l *loader) commandFile(what, name string, parse func(string, []byte) (*policy.Document, error)) {
	path, err := absolute(name)
	if err != nil {
		l.fail(ownfile.Describe(what, name, err))
		return
	}
	content, err := ownfile.Read(path)
	if err != nil {
		l.fail(ownfile.Describe(what, path, err))
		return
	}
	doc, err := parse(path, content.Data)
	l.add(doc, err, File{Path: path, Layer: policy.LayerCommand, Trusted: true, SHA256: content.Sum()})
}

// flags adds the documents that are not files.
func (l *loader) flags() {
	if l.opts.Command != nil {
		l.layers = append(l.layers, policy.Layered{Doc: l.opts.Command, Layer: policy.LayerCommand})
	}
	if l.opts.Session != nil {
		doc := &policy.Document{}
		l.fail(doc.Set("enabled", strconv.FormatBool(*l.opts.Session), "session"))
		l.layers = append(l.layers, policy.Layered{Doc: doc, Layer: policy.LayerSession})
	}
}
