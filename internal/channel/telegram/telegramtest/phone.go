package telegramtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Phone is a terminal, or a script, that people write with: each line is a message to the chat that
// is open, and what the bot does is printed. Lines that begin with a colon are commands.
type Phone struct {
	Server *Server
	Out    io.Writer
	Person User // who writes; zero: Bob, 1207
	Faint  bool // print what passes in faint letters: the terminal can
	// Wait is how long :wait waits; 0: 30 s.
	Wait time.Duration

	mu     sync.Mutex // of Out, and of what was printed last
	typing bool       // the last line says that the bot types

	chat   Chat
	thread int64
	people map[string]User
	groups map[string]Chat
	after  int64 // the message that the last :wait found
}

// Help lists the commands of a Phone.
const Help = `Each line is a message. Commands:
  :dm NAME [ID]       write to the bot as NAME, in private
  :group NAME [ID]    write in a group
  :as NAME [ID]       write as another person in the same group
  :topic [N]          write in topic N of the group; without N: in none
  :reply N TEXT       answer message N
  :edit N TEXT        change message N
  :press N            press button N of the newest message that has buttons
  :photo FILE [TEXT]  send a picture; :voice FILE and :file FILE send other files
  :album FILE FILE..  send pictures as one
  :wait TEXT          wait until the bot sent a message that contains TEXT
  :help               this list
  :quit               end`

// ErrNotSent is the error of a wait that was in vain.
var ErrNotSent = errors.New("the bot did not send it")

// firstPerson and firstGroup are the ids of those that have none of their own.
const (
	firstPerson = 1208
	firstGroup  = -100201
)

// Run reads lines until the input or ctx ends, or a command fails in a script: ErrNotSent. OnCall
// of the server has to be p.Print.
func (p *Phone) Run(ctx context.Context, in io.Reader) error {
	if p.Person.ID == 0 {
		p.Person = User{ID: 1207, FirstName: "Bob", Username: "bob"}
	}
	if p.Wait == 0 {
		p.Wait = 30 * time.Second
	}
	p.people, p.groups = map[string]User{p.Person.FirstName: p.Person}, map[string]Chat{}
	p.open(Private(p.Person))
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for ctx.Err() == nil && lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		if strings.TrimSpace(line) == "" {
			continue
		}
		err := p.line(ctx, line)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, ErrNotSent):
			return err
		case err != nil:
			p.print("! " + err.Error())
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the lines: %w", err)
	}
	return nil
}

func (p *Phone) line(ctx context.Context, line string) error {
	if !strings.HasPrefix(line, ":") {
		p.say(Message{Text: line})
		return nil
	}
	command, rest, _ := strings.Cut(line[1:], " ")
	rest = strings.TrimSpace(rest)
	first, after, _ := strings.Cut(rest, " ")
	n, isNumber := strconv.ParseInt(first, 10, 64)
	switch command {
	case "dm", "as", "group":
		return p.turn(command, rest)
	case "topic":
		if p.thread = n; isNumber != nil {
			p.thread = 0
		}
		return nil
	case "reply":
		p.say(Message{Text: after, ReplyTo: n})
		return nil
	case "edit":
		_, err := p.Server.Edit(p.chat.ID, n, after)
		return err
	case "press":
		return p.press(int(n))
	case "photo", "voice", "file":
		f, err := load(command, first)
		if err == nil {
			p.say(Message{Text: after, Files: []File{f}})
		}
		return err
	case "album":
		return p.album(strings.Fields(rest))
	case "wait":
		ctx, cancel := context.WithTimeout(ctx, p.Wait)
		defer cancel()
		m, err := p.Server.WaitText(ctx, rest, p.after)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrNotSent, rest, err)
		}
		p.after = m.ID
		return nil
	case "help":
		p.print(Help)
		return nil
	case "quit":
		return io.EOF
	}
	return fmt.Errorf("there is no command :%s - :help lists them", command)
}

// turn is :dm, :as and :group.
func (p *Phone) turn(command, rest string) error {
	name, id := rest, int64(0)
	if i := strings.LastIndex(rest, " "); i > 0 {
		if n, err := strconv.ParseInt(rest[i+1:], 10, 64); err == nil {
			name, id = rest[:i], n
		}
	}
	if name == "" {
		return fmt.Errorf(":%s needs a name", command)
	}
	if command == "group" {
		g, ok := p.groups[name]
		if !ok {
			g = Chat{ID: firstGroup - int64(len(p.groups)), Type: "supergroup", Title: name, IsForum: true}
			if id != 0 {
				g.ID = id
			}
			p.groups[name] = g
		}
		p.open(g)
		return nil
	}
	who, ok := p.people[name]
	if !ok {
		who = User{ID: firstPerson + int64(len(p.people)) - 1, FirstName: name, Username: strings.ToLower(name)}
		if id != 0 {
			who.ID = id
		}
		p.people[name] = who
	}
	p.Person = who
	if command == "dm" {
		p.open(Private(who))
	}
	return nil
}

func (p *Phone) open(c Chat) {
	p.chat, p.thread = c, 0
	p.Server.AddChat(c)
	p.pass(fmt.Sprintf("-- %s writes in %s (%d)", p.Person.FirstName, title(c), c.ID))
}

// say sends a message of the person who writes.
func (p *Phone) say(m Message) {
	person := p.Person
	m.Chat, m.From, m.Thread = p.chat, &person, p.thread
	p.mu.Lock() // an answer is printed after it
	defer p.mu.Unlock()
	_, id := p.Server.Say(m)
	p.write(fmt.Sprintf("-- sent as #%d", id), p.Faint)
}

func (p *Phone) press(n int) error {
	list := p.Server.Messages(p.chat.ID)
	for i := len(list) - 1; i >= 0; i-- {
		if len(list[i].Buttons) == 0 {
			continue
		}
		if n < 1 || n > len(list[i].Buttons) {
			return fmt.Errorf("message #%d has the buttons 1 to %d", list[i].ID, len(list[i].Buttons))
		}
		_, err := p.Server.Press(p.chat.ID, list[i].ID, p.Person, list[i].Buttons[n-1].Data)
		return err
	}
	return errors.New("no message in this chat has buttons")
}

func (p *Phone) album(names []string) error {
	var files []File
	for _, name := range names {
		f, err := load("photo", name)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	album := fmt.Sprint(time.Now().UnixNano())
	for _, f := range files {
		p.say(Message{Album: album, Files: []File{f}})
	}
	return nil
}

// load reads a file that a person sends.
func load(command, name string) (File, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return File{}, fmt.Errorf("read the file: %w", err)
	}
	f := File{Kind: command, Name: filepath.Base(name), Content: content}
	switch command {
	case "file":
		f.Kind = "document"
	case "voice":
		f.MIME = "audio/ogg"
	}
	return f, nil
}

// Print prints what the bot does.
func (p *Phone) Print(c Call) {
	if c.Status != 200 {
		p.pass(fmt.Sprintf("-- %s was answered with %d", c.Method, c.Status))
		return
	}
	chat := p.Server.title(c.Chat)
	bot := p.Server.Bot().Username
	switch c.Method {
	case "sendMessage", "editMessageText", "sendDocument", "sendPhoto":
		var b strings.Builder
		fmt.Fprintf(&b, "%s to %s #%d", bot, chat, c.MessageID)
		if c.Thread != 0 {
			fmt.Fprintf(&b, " in topic %d", c.Thread)
		}
		if c.ReplyTo != 0 {
			fmt.Fprintf(&b, " answers #%d", c.ReplyTo)
		}
		if c.Method == "editMessageText" {
			b.WriteString(" edited")
		}
		if c.Detail != "" {
			b.WriteString(" [file " + shown(c.Detail) + "]")
		}
		b.WriteString(": " + strings.ReplaceAll(c.Text, "\n", "\n    "))
		for i, button := range c.Buttons {
			if i == 0 {
				b.WriteString("\n   ")
			}
			fmt.Fprintf(&b, " [%d] %s", i+1, button.Text)
		}
		p.print(b.String())
	case "deleteMessage":
		p.print(fmt.Sprintf("%s to %s #%d deleted", bot, chat, c.MessageID))
	case "setMessageReaction":
		p.print(fmt.Sprintf("%s marks #%d in %s: %s", bot, c.MessageID, chat, c.Detail))
	case "sendChatAction":
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.typing { // it is repeated each 4 seconds
			p.write(fmt.Sprintf("-- %s is typing to %s", bot, chat), p.Faint)
			p.typing = true
		}
	}
}

// print prints a line, or several.
func (p *Phone) print(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(text, false)
}

// pass prints what matters for a moment.
func (p *Phone) pass(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(text, p.Faint)
}

func (p *Phone) write(text string, faint bool) {
	p.typing = false
	if text = shown(text); faint {
		text = "\x1b[2m" + text + "\x1b[0m"
	}
	_, _ = fmt.Fprintln(p.Out, text) // a terminal that is closed shows nothing
}

// shown is a text of the bot without what would change the terminal.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

func title(c Chat) string {
	if c.Title != "" {
		return c.Title
	}
	return c.FirstName
}

func (s *Server) title(chat int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chats[chat]; c != nil && title(c.Chat) != "" {
		return title(c.Chat)
	}
	return fmt.Sprint(chat)
}
