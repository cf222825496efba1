package cloche

import (
	"slices"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// maxNetNotices bounds what is told of one command's network in words.
const maxNetNotices = 10

// notice tells all commands that run something about their network.
func (s *netService) notice(text string) {
	s.mu.Lock()
	records := s.running(time.Now())
	s.mu.Unlock()
	for _, r := range records {
		r.note(text)
	}
}

func (r *netRecord) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.notes) < maxNetNotices && !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// addNotices adds what was told to those of the plan, which stay as they are.
func (r *netRecord) addNotices(list []plan.Notice) []plan.Notice {
	list = slices.Clip(list)
	for _, text := range r.notes {
		list = append(list, plan.Notice{Kind: plan.NoticeNetwork, Text: text})
	}
	return list
}
