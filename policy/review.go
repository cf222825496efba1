package policy

import "encoding/json"

// DefaultReview is the name of a review that was given none: review: true.
const DefaultReview = "default"

// maxReviewName is how long the name of a review may be.
const maxReviewName = 64

// A reviewName is the key review: the name of a review, or empty for none. In a file it may also
// be true or false.
type reviewName string

func (r *reviewName) fromScalar(tag, value string) error {
	switch {
	case tag != "!!bool":
		*r = reviewName(value)
		if value == "" {
			return faultf("write true, false or a name", "has no name")
		}
	case isTrue(value):
		*r = DefaultReview
	default:
		*r = ""
	}
	return nil
}

// MarshalJSON writes the form of a file.
func (r reviewName) MarshalJSON() ([]byte, error) {
	switch r {
	case "":
		return []byte("false"), nil
	case DefaultReview:
		return []byte("true"), nil
	}
	return json.Marshal(string(r))
}

// checkReview rejects a name that cannot be the name of a folder in the store of reviews.
func checkReview(name string) error {
	for i, c := range []byte(name) {
		plain := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !plain && (i == 0 || c != '.' && c != '-' && c != '_') || i >= maxReviewName {
			return faultf("use up to 64 letters, digits, dots, dashes and underscores, a letter or a digit first", "%q is not a name for a review", name)
		}
	}
	return nil
}

// review merges the review. An untrusted document can only switch it on.
func (m *merger) review(l layered) {
	value, p := l.doc.Review, &m.policy
	switch {
	case value == nil:
	case !l.untrusted, p.Review == "" && *value != "":
		p.Review, p.ReviewOrigin = string(*value), l.origin("review")
	case string(*value) != p.Review:
		text, _ := value.MarshalJSON()
		m.ignore(l, l.origin("review"), "review: "+string(text))
	}
}
