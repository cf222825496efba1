package cloche_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

// The program is its own prober: started again inside with one word, it does
// nothing but answer.
func ExampleSession_Verify() {
	if len(os.Args) == 2 && os.Args[1] == "prober" {
		if err := cloche.RunProber(os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	ctx := context.Background()
	s, err := cloche.Open(ctx, policy.Workspace("/home/ana/project"), cloche.WithWorkspace("/home/ana/project"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	v, err := s.Verify(ctx, self, "prober")
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range v.Findings {
		if f.Outcome == cloche.OutcomeNotHeld {
			fmt.Println(f.Rule, f.Subject, f.Detail)
		}
	}
}
