package redact

import (
	"reflect"
	"strings"
	"testing"
)

// W8
func TestArgv(t *testing.T) {
	for in, want := range map[string]string{
		"tool --token=abc x":                    "tool --token=# x",
		"tool --token abc x":                    "tool --token # x",
		"tool -token abc":                       "tool -token #",
		"tool --token --verbose x":              "tool --token --verbose x",
		"tool --token":                          "tool --token",
		"tool --api-key=a=b":                    "tool --api-key=#",
		"tool --apiKey abc --api_key=x":         "tool --apiKey # --api_key=#",
		"tool --db-password abc":                "tool --db-password #",
		"tool --client-secret=x":                "tool --client-secret=#",
		"tool --no-password x":                  "tool --no-password x",
		"tool --token-file=/run/t":              "tool --token-file=/run/t",
		"tool --max-tokens=5 --tokens 7":        "tool --max-tokens=5 --tokens 7",
		"env GITHUB_TOKEN=abc FOO=bar make":     "env GITHUB_TOKEN=# FOO=bar make",
		"env AWS_SECRET_ACCESS_KEY=abc":         "env AWS_SECRET_ACCESS_KEY=#",
		"env npm_config__authToken=abc":         "env npm_config__authToken=#",
		"git clone https://me:pw@host/x":        "git clone https://me:#@host/x",
		"git clone https://me:p@w@host":         "git clone https://me:#@host",
		"git clone ssh://git@host:22/x":         "git clone ssh://git@host:22/x",
		"get http://a/b?u=http://c:d@e/f":       "get http://a/b?u=http://c:#@e/f",
		"get http://host/a:b@c":                 "get http://host/a:b@c",
		"monkey keyboard --secretary=x a/b=c":   "monkey keyboard --secretary=x a/b=c",
		"curl -H Authorization:Bearer_x y":      "curl -H Authorization:_# y",
		"curl -H X-Api-Key:abc -H Accept:x":     "curl -H X-Api-Key:_# -H Accept:x",
		"grep token: file":                      "grep token:_# file",
		"tool --password= next":                 "tool --password=# next",
		"docker run -e DB_PASSWORD=x --rm name": "docker run -e DB_PASSWORD=# --rm name",
	} {
		words := strings.Fields(in)
		before := append([]string(nil), words...)
		expect := strings.Fields(want)
		for i := range expect {
			expect[i] = strings.ReplaceAll(strings.ReplaceAll(expect[i], ":_#", ": #"), "#", Replacement)
		}
		if got := Argv(words); !reflect.DeepEqual(got, expect) {
			t.Errorf("Argv(%q)\n got %q\nwant %q", in, got, expect)
		}
		if !reflect.DeepEqual(words, before) {
			t.Errorf("Argv(%q) changed its input", in)
		}
	}
	if Argv(nil) != nil {
		t.Error("nil became something")
	}
	if got := Argv([]string{"Authorization: Bearer a b"}); got[0] != "Authorization: "+Replacement {
		t.Errorf("a header with spaces: %q", got)
	}
}
