package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simba-lock/simba/lease"
)

// words that doctor would like to ask.
const words = "srvr,conf,cons,mntr"

// member is what is found about one of the servers named in the URL.
type member struct {
	addr    string
	made    *client
	cl      *client // the same; nil: it gives no session
	err     error   // why
	self    string  // our own address, as it sees it
	granted time.Duration

	srvr, conf, cons, mntr says
}

// Examine makes a session with each server that is named, and asks it what it says of
// itself. Nothing is written but the sessions, which are closed again.
func (b *Backend) Examine(ctx context.Context) ([]lease.Finding, error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	terms, err := lease.NewTerms(lease.Unset, lease.Unset, lease.Unset)
	if err != nil {
		return nil, err
	}
	members := make([]*member, len(b.set.hosts))
	var wg sync.WaitGroup
	for i, addr := range b.set.hosts {
		wg.Go(func() { members[i] = b.meet(ctx, addr, terms.Lease()) })
	}
	wg.Wait()
	defer func() {
		for _, m := range members {
			if m.made != nil {
				<-b.retire(m.made)
			}
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var answering []*member
	var errs []error
	for _, m := range members {
		if m.cl != nil {
			answering = append(answering, m)
		} else {
			errs = append(errs, fmt.Errorf("%s: %w", m.addr, m.err))
		}
	}
	if len(answering) == 0 {
		return nil, errors.Join(errs...)
	}
	found := []lease.Finding{
		examineServers(members), examineVersion(members), b.examineEnsemble(ctx, answering[0].cl),
		examineSession(answering, terms.Lease()), examineTicks(answering),
		examineDurability(answering), examineConnections(answering),
	}
	rights, err := b.examineRights(ctx, answering[0].cl)
	return append(found, rights...), err
}

// meet asks one server. The order matters: once it has given us a session it has
// written that to its log.
func (b *Backend) meet(ctx context.Context, addr string, asked time.Duration) *member {
	m := &member{addr: addr}
	set := *b.set
	set.hosts = []string{addr}
	made := newClient(&set, b.dialer, asked, func(string) {})
	if m.err = made.start(); m.err == nil {
		m.made = made
		if _, m.err = made.ready(ctx); m.err == nil {
			m.cl, m.granted, m.self = made, made.granted(), made.self()
		}
	}
	m.srvr = b.dialer.ask(ctx, addr, "srvr")
	m.conf = b.dialer.ask(ctx, addr, "conf")
	m.cons = b.dialer.ask(ctx, addr, "cons")
	m.mntr = b.dialer.ask(ctx, addr, "mntr")
	return m
}

// self is the address from which we are connected.
func (c *client) self() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire == nil {
		return ""
	}
	host, _, _ := net.SplitHostPort(c.wire.LocalAddr().String())
	return host
}

// collected makes one finding of what was said about several servers.
type collected struct{ details, advice []string }

func (c *collected) say(format string, args ...any) {
	c.details = append(c.details, fmt.Sprintf(format, args...))
}

func (c *collected) advise(format string, args ...any) {
	c.advice = append(c.advice, fmt.Sprintf(format, args...))
}

// unasked is for what a server does not tell.
func (c *collected) unasked(m *member, s says) {
	c.say("%s cannot be asked: %v", m.addr, s.err)
	c.advise("let simba doctor ask: 4lw.commands.whitelist=%s in zoo.cfg", words)
}

func (c *collected) finding(check string) lease.Finding {
	unique := func(s []string) string {
		var u []string
		for _, x := range s {
			if !slices.Contains(u, x) {
				u = append(u, x)
			}
		}
		return strings.Join(u, "; ")
	}
	return lease.Finding{Check: check, Detail: unique(c.details), Advice: unique(c.advice)}
}

func examineServers(members []*member) lease.Finding {
	var c collected
	for _, m := range members {
		mode := m.srvr.fields["Mode"]
		switch {
		case m.cl == nil && mode == "read-only":
			c.say("%s is read-only", m.addr)
			c.advise("%s has no majority to write with: bring the other members back", m.addr)
		case m.cl == nil:
			c.say("%s gives no session: %v", m.addr, m.err)
			c.advise("mend %s, or leave it out of the URL: each connection may try it first", m.addr)
		case mode == "":
			c.say("%s gives sessions", m.addr)
		case mode == "observer":
			c.say("%s is an observer", m.addr)
			c.advise("leave %s out of the URL: the leader hears of an observer's sessions later than the lease provides for", m.addr)
		default:
			c.say("%s: %s", m.addr, mode)
		}
	}
	return c.finding("servers")
}

func examineVersion(members []*member) lease.Finding {
	var c collected
	for _, m := range members {
		if m.srvr.err != nil {
			if m.cl != nil {
				c.unasked(m, m.srvr)
			}
			continue
		}
		version, _, _ := strings.Cut(m.srvr.fields["Zookeeper version"], ",")
		version, _, _ = strings.Cut(version, "-")
		c.say("%s", version)
		var major, minor int
		if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || major < 3 || major == 3 && minor < 5 {
			c.advise("servers before 3.5 know no containers: the directory of each mutex stays there for good; " +
				"simba was tried on 3.8")
		}
	}
	return c.finding("version")
}

// configNode is where the members stand, from 3.5 on.
const configNode = "/zookeeper/config"

func (b *Backend) examineEnsemble(ctx context.Context, cl *client) lease.Finding {
	f := lease.Finding{Check: "ensemble"}
	n, err := call(ctx, cl, reads, "read "+configNode, get(configNode))
	if err != nil {
		f.Detail = fmt.Sprintf("its members are not known: %v", err)
		f.Advice = "let this user read " + configNode +
			", or look yourself that there are three voting servers or more, and that the URL names them all"
		return f
	}
	voters, observers := membersOf(string(n.data))
	named := len(b.set.hosts)
	f.Detail = fmt.Sprintf("voting members: %d, observers: %d, named in the URL: %d", voters, observers, named)
	switch {
	case voters == 0:
		f.Detail = "one server, alone"
		f.Advice = "run three: when one server is away all jobs are stopped within their leases, " +
			"and one that lost its data forgets who owns what"
	case voters < 3:
		f.Advice = "run three voting servers: of fewer none may be away"
	case named < voters:
		f.Advice = fmt.Sprintf("name all %d voting servers in the URL: "+
			"a run that cannot go to another one when its own is away is stopped", voters)
	}
	return f
}

// membersOf counts what stands in the node of the configuration, one to a line:
// server.1=host:2888:3888:participant;2181.
func membersOf(config string) (voters, observers int) {
	for line := range strings.Lines(config) {
		address, isServer := strings.CutPrefix(strings.TrimSpace(line), "server.")
		switch {
		case !isServer:
		case strings.Contains(address, ":observer"):
			observers++
		default:
			voters++
		}
	}
	return voters, observers
}

func examineSession(members []*member, asked time.Duration) lease.Finding {
	var c collected
	for _, m := range members {
		switch {
		case m.granted == asked:
			c.say("%v granted, as asked for by default", m.granted)
		case m.granted < asked:
			c.say("%s grants %v instead of the %v of the default lease", m.addr, m.granted, asked)
			c.advise("set maxSessionTimeout=%d or more in zoo.cfg, or run with --ttl and --transition that add up to %v: "+
				"shorter leases than asked for survive shorter outages", asked.Milliseconds(), m.granted)
		default:
			c.say("%s grants %v instead of the %v of the default lease", m.addr, m.granted, asked)
			c.advise("set minSessionTimeout=%d or less in zoo.cfg (it is two ticks if not set): a dead owner keeps its mutex for %v",
				asked.Milliseconds(), m.granted)
		}
	}
	return c.finding("session timeout")
}

// examineTicks: a lease is provable if it lasts two ticks at least, see the package
// comment.
func examineTicks(members []*member) lease.Finding {
	var c collected
	for _, m := range members {
		if m.conf.err != nil {
			c.unasked(m, m.conf)
			continue
		}
		tick, least := m.conf.duration("tickTime"), m.conf.duration("minSessionTimeout")
		c.say("tick %v, sessions of %v to %v", tick, least, m.conf.duration("maxSessionTimeout"))
		if least < 2*tick || m.granted < 2*tick {
			c.advise("set minSessionTimeout=%d in zoo.cfg: with a session of less than two ticks an owner can believe in its lease "+
				"for longer than the leader does", (2 * tick).Milliseconds())
		}
	}
	return c.finding("tick")
}

// examineDurability: nothing tells forceSync, but a server that has written its log and
// never waited for its disk has it off. It counts the one after the other.
func examineDurability(members []*member) lease.Finding {
	var c collected
	for _, m := range members {
		syncs, told := m.mntr.number("zk_cnt_fsynctime")
		writes, _ := m.mntr.number("zk_cnt_sync_processor_queue_flush_time_ms")
		switch {
		case m.mntr.err != nil:
			c.unasked(m, m.mntr)
		case !told:
			c.say("%s does not tell whether it waits for its disk", m.addr)
			c.advise("look that forceSync=no is not set for %s", m.addr)
		case syncs > 0:
			c.say("%s waits for its disk", m.addr)
		case writes == 0:
			c.say("%s has written nothing since it was started", m.addr)
			c.advise("run simba doctor again when %s has", m.addr)
		default:
			c.say("%s has never waited for its disk", m.addr)
			c.advise("remove forceSync=no from %s: after a loss of power it may have forgotten who owns what", m.addr)
		}
	}
	return c.finding("durability")
}

func examineConnections(members []*member) lease.Finding {
	var c collected
	for _, m := range members {
		if m.conf.err != nil {
			c.unasked(m, m.conf)
			continue
		}
		limit, _ := m.conf.number("maxClientCnxns")
		if limit == 0 {
			c.say("%s: no limit", m.addr)
			continue
		}
		used, whose := m.cons.from(m.self), "of this host"
		if m.cons.err != nil {
			used, _ = m.srvr.number("Connections")
			whose = "of all hosts together"
		}
		c.say("%s: %d connections %s, and a host may have %d", m.addr, used, whose, limit)
		if used*5 >= limit*4 {
			c.advise("raise maxClientCnxns of %s: each run and each waiting run has a connection, "+
				"and one too many is turned away", m.addr)
		}
	}
	return c.finding("connections")
}
