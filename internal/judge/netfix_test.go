package judge

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N1 N3: each refusal says what would allow it, and that does allow it.
func TestNetGrant(t *testing.T) {
	for _, tt := range []struct {
		name        string
		allow, deny []string
		dest        string
		op          plan.Op
		request     string // METHOD PATH
		want        string
	}{
		{"name", nil, nil, "a.com=8.8.8.8:443", plan.OpConnect, "", "--allow a.com:443"},
		{"udp", nil, nil, "udp://a.com=8.8.8.8:53", plan.OpConnect, "", "--allow udp://a.com:53"},
		{"ping", nil, nil, "icmp://a.com=8.8.8.8", plan.OpConnect, "", "--allow icmp://a.com"},
		{"address", nil, nil, "8.8.8.8:443", plan.OpConnect, "", "--allow 8.8.8.8:443"},
		{"v6", nil, nil, "[2606:4700::1]:443", plan.OpConnect, "", "--allow '[2606:4700::1]:443'"},
		{"v6 ping", nil, nil, "icmp://2606:4700::1", plan.OpConnect, "", "--allow icmp://2606:4700::1"},
		{"private behind a name", []string{"*"}, nil, "a.com=10.0.0.1:80", plan.OpConnect, "", "--allow private://a.com:80"},
		{"metadata behind a name", []string{"*"}, nil, "a.com=169.254.169.254:80", plan.OpConnect, "", "--allow 169.254.169.254:80"},
		{"private", []string{"*"}, nil, "10.0.0.1:80", plan.OpConnect, "", "--allow 10.0.0.1:80"},
		{"mapped", []string{"*"}, nil, "[::ffff:10.0.0.1]:80", plan.OpConnect, "", "--allow 10.0.0.1:80"},
		{"loopback", []string{"*"}, nil, "127.0.0.1:5432", plan.OpConnect, "", "--forward 5432"},
		{"loopback behind a name", []string{"*"}, nil, "a.com=127.0.0.1:5432", plan.OpConnect, "", ""},
		{"loopback udp", []string{"*"}, nil, "udp://[::1]:53", plan.OpConnect, "", "--forward 53/udp"},
		{"loopback ping", []string{"*"}, nil, "icmp://::1", plan.OpConnect, "", ""},
		{"denied", []string{"*"}, []string{"a.com"}, "a.com=8.8.8.8:1", plan.OpConnect, "", ""},
		{"look-up", nil, nil, "a.com=8.8.8.8", plan.OpResolve, "", "--allow a.com"},
		{"request", []string{"http://a.com/v1"}, nil, "a.com=8.8.8.8:80", plan.OpRequest, "GET /v2?q", "--allow http://a.com/v2"},
		{"request at a port", []string{"http://a.com:81/v1"}, nil, "a.com=8.8.8.8:81", plan.OpRequest, "GET /it's", `--allow 'http://a.com:81/it'\''s'`},
		{"unreadable request", []string{"http://a.com/v1"}, nil, "a.com=8.8.8.8:80", plan.OpRequest, "GET /v1/../x", ""},
		{"a star in a request", []string{"http://a.com/v1"}, nil, "a.com=8.8.8.8:80", plan.OpRequest, "GET /**", ""},
		{"odd name", nil, nil, "127.1=8.8.8.8:80", plan.OpConnect, "", ""},
		{"a name that is a rule", nil, nil, "*=8.8.8.8:80", plan.OpConnect, "", ""},
	} {
		j, d := judgeOf(t, tt.allow, tt.deny), destOf(t, tt.dest)
		ask := func(j *Network) NetDecision {
			method, path, _ := strings.Cut(tt.request, " ")
			switch tt.op {
			case plan.OpResolve:
				return j.Name(d.Names[0])
			case plan.OpRequest:
				return j.Request(d, method, d.Names[0], path)
			}
			return j.Connect(d)
		}
		v := ask(j)
		method, path, _ := strings.Cut(tt.request, " ")
		denial := v.Denial(tt.op, d, method, path)
		if v.Allowed || runoption.Text(denial.Fix...) != tt.want {
			t.Errorf("%s: allowed %v, grant %q, want %q", tt.name, v.Allowed, runoption.Text(denial.Fix...), tt.want)
			continue
		}
		if fix := denial.Fix; len(fix) == 1 && fix[0].Field == "network.allow" {
			if v := ask(judgeOf(t, append([]string{fix[0].Entry()}, tt.allow...), tt.deny)); !v.Allowed {
				t.Errorf("%s: %s does not allow it: %+v", tt.name, tt.want, v)
			}
		}
	}
}

// What cannot be judged no option allows.
func TestNetGrantOfProtocol(t *testing.T) {
	d := plan.Denial{Decision: plan.Decision{Op: plan.OpRequest, Host: "a.com", Port: 80, Method: "GET", Path: "/", Rule: RuleNetworkProtocol}}
	Fixer{}.Fix(&d.Decision)
	if got := runoption.Text(d.Fix...); got != "" {
		t.Errorf("got %s", got)
	}
}

// The records as JSON: no fields of files in those of the network, and the reverse.
func TestNetRecordsJSON(t *testing.T) {
	d := plan.Denial{Decision: plan.Decision{Op: plan.OpConnect, Host: "a.com", Addr: netip.MustParseAddr("8.8.8.8"), Port: 443, Protocol: "tcp", Rule: RuleNetworkAllow}, Count: 1}
	b, err := json.Marshal(d)
	if err != nil || strings.Contains(string(b), `"path"`) || !strings.Contains(string(b), `"host":"a.com","addr":"8.8.8.8","port":443,"protocol":"tcp"`) {
		t.Errorf("%s, %v", b, err)
	}
	b, err = json.Marshal(plan.Denial{Decision: plan.Decision{Op: plan.OpRead, Path: "/x", Access: policy.Hidden, Rule: "paths.hide", At: "/x"}})
	if err != nil || strings.Contains(string(b), `"host"`) || strings.Contains(string(b), `"addr"`) || !strings.Contains(string(b), `"path":"/x"`) {
		t.Errorf("%s, %v", b, err)
	}
	n := plan.Network{Mode: policy.NetworkUser, Link: policy.LinkVeth, Allow: []plan.HostPort{{Host: "a", Port: 80, Protocol: "tcp", Methods: []string{"GET"}}}, Publish: []plan.Port{{Address: "127.0.0.1", Host: 1, Inside: 2, Protocol: "tcp"}}}
	if b, err = json.Marshal(n); err != nil || !strings.Contains(string(b), `"mode":"user","link":"veth","allow":[{"host":"a","port":80,"protocol":"tcp","methods":["GET"],"origin"`) ||
		!strings.Contains(string(b), `"publish":[{"address":"127.0.0.1","host":1,"inside":2,"protocol":"tcp"`) {
		t.Errorf("%s, %v", b, err)
	}
	if b, err = json.Marshal(plan.Network{}); err != nil || strings.Contains(string(b), "link") {
		t.Errorf("%s, %v", b, err)
	}
}
