package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/lease"
)

// asked are the settings that INFO does not tell.
var asked = []string{
	"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag",
}

// server is what one server says of itself.
type server struct {
	info, config       map[string]string
	noInfo, noConfig   error // why it does not say
	user               string
	kind               kind
	masters, waitedFor int
}

// Examine is [lease.Examiner.Examine]. It takes INFO, CONFIG GET, ACL WHOAMI and, in a
// cluster, CLUSTER SLOTS. An account without the right to one of them is told so.
func (b *Backend) Examine(ctx context.Context) ([]lease.Finding, error) {
	addrs, err := b.masters(ctx)
	var first []lease.Finding
	var reply goredis.Error
	switch {
	case errors.As(err, &reply) && strings.Contains(reply.Error(), "cluster support disabled"):
		first = []lease.Finding{{
			Check: "cluster", Detail: "the server belongs to none", Advice: "write redis:// or redis+sentinel:// in the URL",
		}}
	case refused(err):
		first = []lease.Finding{{
			Check: "cluster", Detail: "its other nodes cannot be asked for: " + err.Error(),
			Advice: "let the account use CLUSTER SLOTS (+cluster|slots)",
		}}
	case err != nil:
		return nil, err
	}
	if len(first) > 0 {
		addrs = []string{b.routes.find("")}
	}
	each := make([][]lease.Finding, len(addrs))
	for i, addr := range addrs {
		s := server{kind: b.set.kind, masters: len(addrs), waitedFor: b.set.replicas}
		err := b.once(ctx, addr, false, func(lib *goredis.Client) error { return s.ask(ctx, lib) })
		if err != nil {
			return nil, sorted(err)
		}
		each[i] = s.findings()
	}
	return append(first, merged(addrs, each)...), nil
}

// ask reads all there is. What is refused is noted; other errors end it.
func (s *server) ask(ctx context.Context, lib *goredis.Client) error {
	text, err := lib.Info(ctx).Result()
	if s.noInfo, err = denied(err); err != nil {
		return err
	}
	s.info = make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			s.info[key] = value
		}
	}
	s.config = make(map[string]string)
	for _, name := range asked { // older servers take one at a time
		values, err := lib.ConfigGet(ctx, name).Result()
		if s.noConfig, err = denied(err); err != nil {
			return err
		}
		if s.noConfig != nil {
			break
		}
		for key, value := range values {
			s.config[key] = value
		}
	}
	s.user, err = lib.Do(ctx, "ACL", "WHOAMI").Text()
	if no, err := denied(err); no != nil || err != nil {
		s.user = ""
		return err
	}
	return nil
}

// denied tells what the server does not let be known from what went wrong.
func denied(err error) (no, failed error) {
	if refused(err) {
		return sorted(err), nil
	}
	return nil, err
}

// merged puts together what several servers have in common.
func merged(addrs []string, each [][]lease.Finding) []lease.Finding {
	if len(each) == 1 {
		return each[0]
	}
	type group struct {
		lease.Finding
		addrs []string
	}
	var groups []*group
	byText := map[lease.Finding]*group{}
	for i, findings := range each {
		for _, f := range findings {
			g := byText[f]
			if g == nil {
				g = &group{Finding: f}
				byText[f] = g
				// Beside what another server says to the same question.
				at := len(groups)
				for j := range groups {
					if groups[j].Check == f.Check {
						at = j + 1
					}
				}
				groups = slices.Insert(groups, at, g)
			}
			g.addrs = append(g.addrs, addrs[i])
		}
	}
	var all []lease.Finding
	for _, g := range groups {
		who := strings.Join(g.addrs, ", ")
		if len(g.addrs) == len(addrs) {
			who = fmt.Sprintf("all %d masters", len(addrs))
		}
		g.Detail = who + ": " + g.Detail
		all = append(all, g.Finding)
	}
	return all
}
