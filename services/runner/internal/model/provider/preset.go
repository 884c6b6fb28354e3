package provider

import "slices"

// The APIs of providers.
const (
	apiOpenAI    = "openai"
	apiAnthropic = "anthropic"
)

// Preset is a provider that a key is enough for.
type Preset struct {
	Name, API string
	// Aliases are other names of it.
	Aliases []string
	// RegionOf is the preset that this one is for another region: it has the same key variable and
	// another address, and a key in the environment never makes it the default. Empty: it is none.
	RegionOf string
	// KeyVar, BaseVar and ModelVar are environment variables: the key, another
	// base URL, another default model. A provider without KeyVar has no key.
	KeyVar, BaseVar, ModelVar string
	BaseURL                   string
	// Model is the default; empty where there can be none.
	Model string
	// Window is the context window in tokens of models that Windows does not
	// name.
	Window  int
	Windows map[string]int
	// Images are the beginnings of the names of models that take images.
	Images []string
	// ReplayReasoning: thinking goes back in tool rounds, or they are refused.
	ReplayReasoning bool
}

// Needs are the variables without which the provider is not there.
func (p Preset) Needs() []string {
	if p.KeyVar == "" {
		return []string{p.BaseVar, p.ModelVar}
	}
	return []string{p.KeyVar}
}

// Presets are the well-known providers with those of other regions: the endpoints in China take
// keys of their own accounts. Sources: platform.moonshot.cn/docs, help.aliyun.com/zh/model-studio.
var Presets = append(presets[:len(presets):len(presets)],
	region("kimi", "moonshot", "https://api.moonshot.cn/v1"),
	region("dashscope", "qwen", "https://dashscope.aliyuncs.com/compatible-mode/v1"),
)

// region is a preset at the address of another region.
func region(name, of, address string) Preset {
	p := presets[slices.IndexFunc(presets, func(p Preset) bool { return p.Name == of })]
	p.Name, p.RegionOf, p.BaseURL, p.BaseVar = name, of, address, ""
	return p
}

// presets are those with variables of their own, in the order in which a key in the
// environment makes one the default. Each entry names the source of its facts, read
// in autumn 2026; where pages differ or give none, the smaller figure is used,
// since a window that is too small costs history and one that is too large costs
// the answer. providers.yaml overrides all of them. Prices are not here: they
// change too often.
var presets = []Preset{
	{
		// platform.openai.com/docs/models
		Name: "openai", API: apiOpenAI, KeyVar: "OPENAI_API_KEY", BaseVar: "OPENAI_BASE_URL", ModelVar: "OPENAI_MODEL",
		BaseURL: "https://api.openai.com/v1", Model: "gpt-4o", Window: 128_000,
		Images: []string{"gpt-4o", "gpt-4.1", "gpt-5"},
	},
	{
		// api-docs.deepseek.com, docs.pipecat.ai: thinking of a tool round goes back as
		// reasoning_content.
		Name: "deepseek", API: apiOpenAI, KeyVar: "DEEPSEEK_API_KEY", BaseVar: "DEEPSEEK_BASE_URL", ModelVar: "DEEPSEEK_MODEL",
		BaseURL: "https://api.deepseek.com/v1", Model: "deepseek-chat", Window: 128_000, ReplayReasoning: true,
	},
	{
		// platform.moonshot.ai/docs, promptfoo.dev/docs/providers/moonshot: the kimi-k2 line has 256k; thinking with
		// tools is refused without reasoning_content.
		Name: "moonshot", API: apiOpenAI, KeyVar: "MOONSHOT_API_KEY", BaseVar: "MOONSHOT_BASE_URL", ModelVar: "MOONSHOT_MODEL",
		BaseURL: "https://api.moonshot.ai/v1", Model: "kimi-k2.6", Window: 256_000, ReplayReasoning: true,
		Windows: map[string]int{"moonshot-v1-8k": 8192, "moonshot-v1-32k": 32_768, "moonshot-v1-128k": 131_072},
	},
	{
		// platform.claude.com/docs/en/about-claude/models/overview: a million for
		// Sonnet and Opus from 4.6 on, 200k for what was before and for Haiku 4.5.
		Name: "anthropic", Aliases: []string{"claude"}, API: apiAnthropic, KeyVar: "ANTHROPIC_API_KEY", BaseVar: "ANTHROPIC_BASE_URL", ModelVar: "ANTHROPIC_MODEL",
		BaseURL: "https://api.anthropic.com", Model: "claude-sonnet-4-6", Window: 200_000,
		Images:  []string{"claude-3", "claude-sonnet-", "claude-opus-", "claude-haiku-"},
		Windows: map[string]int{"claude-sonnet-4-6": 1_000_000, "claude-opus-4-6": 1_000_000, "claude-opus-4-7": 1_000_000, "claude-opus-4-8": 1_000_000},
	},
	{
		// docs.continue.dev and llamaindex on api.minimax.io: an OpenAI-compatible endpoint that thinks
		// between <think> tags; 204,800 tokens for the M2 line.
		Name: "minimax", API: apiOpenAI, KeyVar: "MINIMAX_API_KEY", BaseVar: "MINIMAX_BASE_URL", ModelVar: "MINIMAX_MODEL",
		BaseURL: "https://api.minimax.io/v1", Model: "MiniMax-M2.7", Window: 204_800,
	},
	{
		// docs.litellm.ai/docs/providers/dashscope: compatible mode of the
		// international region; openrouter.ai's pages differ between 131,072 and a million for qwen-plus.
		Name: "qwen", API: apiOpenAI, KeyVar: "DASHSCOPE_API_KEY", BaseVar: "DASHSCOPE_BASE_URL", ModelVar: "DASHSCOPE_MODEL",
		BaseURL: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", Model: "qwen-plus", Window: 131_072,
	},
	{
		// ai.google.dev/gemini-api/docs/openai: a million for 2.5 and later.
		Name: "gemini", Aliases: []string{"google"}, API: apiOpenAI, KeyVar: "GEMINI_API_KEY", BaseVar: "GEMINI_BASE_URL", ModelVar: "GEMINI_MODEL",
		BaseURL: "https://generativelanguage.googleapis.com/v1beta/openai", Model: "gemini-3.8-flash", Window: 128_000,
		Images:  []string{"gemini-2", "gemini-3"},
		Windows: map[string]int{"gemini-2.5-flash": 1_048_576, "gemini-2.5-pro": 1_048_576, "gemini-3.8-flash": 1_048_576},
	},
	{
		// openrouter.ai/docs/quickstart; auto chooses a model by the prompt.
		Name: "openrouter", API: apiOpenAI, KeyVar: "OPENROUTER_API_KEY", BaseVar: "OPENROUTER_BASE_URL", ModelVar: "OPENROUTER_MODEL",
		BaseURL: "https://openrouter.ai/api/v1", Model: "openrouter/auto", Window: 128_000,
	},
	// Ollama has no key and no default model; its window is what the server
	// was started with, 4096 by default, and it cuts longer prompts without
	// an error, so no more is assumed (docs.ollama.com/context-length).
	{Name: "ollama", API: apiOpenAI, BaseVar: "OLLAMA_HOST", ModelVar: "OLLAMA_MODEL", BaseURL: "http://127.0.0.1:11434/v1", Window: 4096},
}

// findPreset returns the provider of a name or an alias.
func findPreset(name string) (Preset, bool) {
	i := slices.IndexFunc(Presets, func(p Preset) bool { return p.Name == name || slices.Contains(p.Aliases, name) })
	if i < 0 {
		return Preset{}, false
	}
	return Presets[i], true
}
