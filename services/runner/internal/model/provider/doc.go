// Package provider finds the model providers of this machine, the default one,
// and how to reach each.
//
// Sources, in this order; a name is taken from the first that has it, and the
// default from the first that names one:
//
//	1 providers.yaml    $THECLAW_HOME/providers.yaml, written by the user
//	2 environment       the variables of [Presets]: OPENAI_API_KEY,
//	                    ANTHROPIC_API_KEY, DEEPSEEK_API_KEY and so on
//	3 pai               an existing pai configuration ($PAI_CONFIG, else
//	                    ~/.config/pai/default.json)
//	4 offline           built in, always there
//
// providers.yaml:
//
//	default: work                    # may be left out with one provider
//	providers:
//	  work:
//	    api: openai                  # or anthropic, offline; openai when left out
//	    base_url: https://llm.example.com/v1
//	    api_key: env:WORK_KEY        # or file:PATH (relative to this file)
//	    models: [large, small]       # the first is the default; none: any
//	    context_window: 128000       # tokens; 128000 when left out
//	    replay_reasoning: false      # for thinking models that demand it
//	    thinking: adaptive           # api anthropic: off, adaptive or tokens
//	    price:                       # per million tokens; none: no cost is shown
//	      large: {input: 3, output: 15, cache_read: 0.3, cache_write: 3.75}
//	    facts:                                      # of single models
//	      large: {images: true}                     # it takes images
//	  anthropic:                     # a name of Presets, or an alias: its address,
//	    api_key: file:anthropic.key  # api and windows need not be written
//
// The names pai and pai/NAME, unless a provider is called so, mean the pai program
// with its default provider or with the one it has as NAME. They are a default only
// where providers.yaml sets default: pai/NAME.
//
// What it promises: keys are references, read again at each Resolve, so a
// rotated key needs no restart, and a key file that others can read is refused;
// a key is in no error, no String and no field; a provider that is named and
// cannot be used is an error, never silently another one: an agent whose key got
// lost must not answer its peers with the offline model. The name offline is the built-in model, always.
//
// What it does not do: it makes no call, reads no environment but through the
// function it is given, and checks no agent configuration. Callers pass empty
// names where the agent's owner has chosen none (the built-in defaults of the
// agent's config.yaml are no choice), so that this package's default applies.
package provider
