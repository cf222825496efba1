package policy

import (
	"reflect"
	"strings"
	"testing"
)

// N5: an untrusted file can switch the review on, and neither off nor to another one.
func TestReviewOfUntrusted(t *testing.T) {
	project := func(text string) Layered {
		return Layered{Layer: LayerProject, Untrusted: true, Doc: mustParse(t, "project", text)}
	}
	user := Layered{Layer: LayerUser, Doc: mustParse(t, "user", "review: mine")}
	for _, tt := range []struct {
		layers  []Layered
		want    string
		ignored []string
	}{
		{[]Layered{project("review: true")}, DefaultReview, []string{}},
		{[]Layered{project("review: theirs")}, "theirs", []string{}},
		{[]Layered{project("review: false")}, "", []string{}},
		{[]Layered{user, project("review: false")}, "mine", []string{"review: false"}},
		{[]Layered{user, project("review: theirs")}, "mine", []string{`review: "theirs"`}},
		{[]Layered{user, {Layer: LayerCommand, Doc: mustParse(t, "command", "review: false")}}, "", []string{}},
	} {
		p, ignored := mustMerge(t, tt.layers...)
		texts := append([]string{}, ignoredTexts(ignored)...)
		if p.Review != tt.want || !reflect.DeepEqual(texts, tt.ignored) {
			t.Errorf("review %q, ignored %q; want %q, %q", p.Review, texts, tt.want, tt.ignored)
		}
	}
}

// N5: the name of a review is the name of a folder in the store.
func TestReviewNames(t *testing.T) {
	for _, name := range []string{"..", "a/b", ".hidden", "-x", "a b", strings.Repeat("a", 65), "ä"} {
		if err := (Policy{}).With(WithReview(name)).Validate(); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
	for _, text := range []string{`review: ""`, "review: [a]", "review: ../x"} {
		if _, err := Parse("f", []byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	if p := (Policy{}).With(WithReview("")); p.Review != DefaultReview || p.Validate() != nil {
		t.Errorf("without a name: %q, %v", p.Review, p.Validate())
	}
}
