// Package config finds the policy files that apply to a workspace. It merges them with
// the command line's options and the session's switch into one policy. It records where
// each part comes from, and which project files the user has trusted.
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

// Options say where to search, and what the command line adds.
type Options struct {
	// Workspace is the absolute folder, without symbolic links, where the search for a project file starts.
	Workspace string
	// Home is the folder in which that search ends. Empty means the user's home folder.
	Home string
	// UserFile is the user's policy file, which has to exist. If it is empty, it is
	// UserFileName in ConfigDir, which may be missing.
	UserFile  string
	ConfigDir string
	// DataDir is the folder of the trust store.
	DataDir string
	// NoProject leaves out the project files.
	NoProject bool
	// Without is a project file that is left out, because a new one is about to replace it.
	Without string
	// PolicyFiles are further policies for this command, lowest first.
	PolicyFiles []string
	// Capabilities is a file with a capability declaration.
	Capabilities string
	// Command is the policy of the command line's options.
	Command *policy.Document
	// Session is the run-time switch: on, off, or nil if it is not set.
	Session *bool
}

// Loaded is the result of Load.
type Loaded struct {
	Policy policy.Policy
	// Ignored are the settings of untrusted project files that were not applied.
	Ignored []policy.Ignored
	// Files are the files that were read, lowest layer first.
	Files []File
}

// A File is a policy file that was read.
type File struct {
	// Path is absolute. For a project file its folder has no symbolic links.
	Path  string
	Layer policy.Layer
	// Trusted says that the file may loosen the policy. If it may not, Why says why.
	Trusted bool
	Why     string
	// SHA256 is the hash of exactly the bytes that were parsed, in hex.
	SHA256 string
}

// Load reads all files and merges them with the options. It returns all errors that it
// finds, joined.
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
	// ignored are the settings that were left out before the merge.
	ignored []policy.Ignored
}

// add adds a document that was read from a file, or the error.
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
	// This is not an error: with sudo that keeps HOME, the file belongs to another user,
	// and an error would prevent every command.
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
	// The outermost file comes first, because a nearer one is more specific.
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

// commandFiles reads the files that options name. A file that is named on the command
// line is trusted.
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

// flags adds the documents that do not come from files.
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
