package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/cloche-dev/cloche/policy"
)

// A node is one shell step of a workflow, with what it declares that it needs.
type node struct {
	ID             string          `json:"id"`
	Command        string          `json:"command"`
	Args           []string        `json:"args,omitempty"`
	TimeoutSeconds float64         `json:"timeout_seconds,omitempty"`
	Capabilities   json.RawMessage `json:"capabilities,omitempty"`
}

func readNode(r io.Reader) (*node, error) {
	text, err := io.ReadAll(io.LimitReader(r, policy.MaxFileSize))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var n node
	if err := d.Decode(&n); err != nil {
		return nil, fmt.Errorf("the node is no JSON object that is understood: %w", err)
	}
	if n.ID == "" || n.Command == "" {
		return nil, fmt.Errorf("the node needs an id and a command")
	}
	return &n, nil
}

// policy is the default of all nodes with the node's declaration above it. A
// declaration says everything: what it leaves out is as flow documents it.
func (n *node) policy() (policy.Policy, error) {
	base, err := policy.Parse("policy.yaml", nodePolicy)
	if err != nil {
		return policy.Policy{}, err
	}
	layers := []policy.Layered{{Doc: base, Layer: policy.LayerUser}}
	if len(n.Capabilities) > 0 {
		declared, err := policy.ParseCapabilities("node "+n.ID, n.Capabilities)
		if err != nil {
			return policy.Policy{}, err
		}
		layers = append(layers, policy.Layered{Doc: declared, Layer: policy.LayerCommand})
	}
	p, _, err := policy.Merge(layers...)
	if n.TimeoutSeconds > 0 {
		p = p.With(policy.WithLimits(policy.Limits{Time: time.Duration(n.TimeoutSeconds * float64(time.Second))}))
	}
	return p, err
}
