// Command sbom tells, in CycloneDX JSON, what is in programs that Go built: it reads
// what the linker wrote into them, so that it can neither forget nor invent a module.
//
//	go run ./sbom -name theclaw -version v1.0.0 FILE... >theclaw.cdx.json
//
// The same programs give the same bytes: there is no time and no random number in it.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

type bom struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

func main() {
	name, version := flag.String("name", "", "`name` of the product"), flag.String("version", "", "its `version`")
	flag.Parse()
	if err := run(os.Stdout, *name, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, name, version string, files []string) error {
	if name == "" || version == "" || len(files) == 0 {
		return fmt.Errorf("-name, -version and at least one file are needed")
	}
	b := bom{Format: "CycloneDX", Spec: "1.6", Version: 1}
	b.Metadata.Component = component{Type: "application", Ref: name, Name: name, Version: version}
	modules, top := map[string]component{}, dependency{Ref: name, DependsOn: []string{}}
	for _, file := range files {
		program, uses, err := read(file, version)
		if err != nil {
			return err
		}
		d := dependency{Ref: program.Ref, DependsOn: []string{}}
		for _, m := range uses {
			modules[m.Ref] = m
			d.DependsOn = append(d.DependsOn, m.Ref)
		}
		slices.Sort(d.DependsOn)
		b.Components, b.Dependencies = append(b.Components, program), append(b.Dependencies, d)
		top.DependsOn = append(top.DependsOn, program.Ref)
	}
	b.Dependencies = append([]dependency{top}, b.Dependencies...)
	libraries := make([]component, 0, len(modules))
	for _, m := range modules {
		libraries = append(libraries, m)
	}
	slices.SortFunc(libraries, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	b.Components = append(b.Components, libraries...)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(b)
}

// read answers a program and the modules that are linked into it.
func read(file, version string) (component, []component, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return component{}, nil, fmt.Errorf("%s: %w", file, err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return component{}, nil, err
	}
	sum := sha256.Sum256(raw)
	name := filepath.ToSlash(filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file)))
	p := component{Type: "application", Ref: "program:" + name, Name: name, Version: version, Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED", "-trimpath":
			p.Properties = append(p.Properties, property{"go:" + strings.TrimPrefix(s.Key, "-"), s.Value})
		}
	}
	release, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	uses := []component{library("stdlib", release, "")}
	for _, d := range info.Deps {
		if d.Version == "(devel)" || d.Replace != nil && strings.HasPrefix(d.Replace.Path, ".") { // a module of this repository
			uses = append(uses, component{Type: "library", Ref: d.Path, Name: d.Path, Version: version})
			continue
		}
		if d.Replace != nil {
			d = d.Replace
		}
		uses = append(uses, library(d.Path, d.Version, d.Sum))
	}
	return p, uses, nil
}

func library(path, version, sum string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	c := component{Type: "library", Ref: purl, Name: path, Version: version, PURL: purl}
	if sum != "" { // of the module's files, as in go.sum
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}
