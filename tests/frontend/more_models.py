"""Models that importers were not written with: what else users have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tests.frontend.models import (
    _GPT,
    _LLAMA,
    _SMALL,
    Case,
    _pixels,
    _series,
    _text,
    _timm,
    _video,
    _vision,
    tokens,
)

_PLACES = {**_SMALL, "max_position_embeddings": 64}
_TWO = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 99,
    "max_position_embeddings": 64,
}  # fmt: skip
_VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_SOUND = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "conv_dim": [8, 8],
    "conv_stride": [3, 2], "conv_kernel": [5, 3], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
}  # fmt: skip


def _both(one: Callable[[int], Any], other: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda size: (*one(size), *other(size))


def _pair(config: str, model: str, **options: Any) -> Case:
    """An encoder and a decoder over tokens."""
    inputs = _both(tokens(), tokens(shapes=((2, 4), (3, 6), (1, 3))))
    case = _text(config, model, inputs=lambda size: _named_decoder(inputs(size)), **options)
    return dataclasses.replace(case, dynamic=None)


def _named_decoder(inputs: Any) -> Any:
    ids, decoder = inputs
    import torch

    return ids, torch.ones_like(ids), decoder


def _sound(config: str, model: str, **options: Any) -> Case:
    return _series(config, model, 200, **{**_SOUND, **options})


CASES: dict[str, Case] = {
    "more_bart": _text("BartConfig", "BartModel", **_TWO),
    "more_mbart": _text("MBartConfig", "MBartModel", **_TWO),
    "more_pegasus": _pair("PegasusConfig", "PegasusModel", **_TWO),
    "more_t5": _pair("T5Config", "T5ForConditionalGeneration", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                     vocab_size=99),
    "more_marian": _pair("MarianConfig", "MarianModel", **_TWO, pad_token_id=98, decoder_start_token_id=98),
    "more_mobilebert": _text("MobileBertConfig", "MobileBertModel", **_PLACES, embedding_size=16,
                             intra_bottleneck_size=16),
    "more_squeezebert": _text("SqueezeBertConfig", "SqueezeBertModel", **_PLACES, embedding_size=32, q_groups=2,
                              k_groups=2, v_groups=2, post_attention_groups=1, intermediate_groups=2, output_groups=2),
    "more_convbert": _text("ConvBertConfig", "ConvBertModel", **_PLACES, embedding_size=16),
    "more_deberta": _text("DebertaConfig", "DebertaModel", **_PLACES, relative_attention=True,
                          pos_att_type=["p2c", "c2p"]),
    "more_xlnet": _text("XLNetConfig", "XLNetModel", d_model=32, n_layer=2, n_head=4, d_inner=48, vocab_size=99),
    "more_fnet": _text("FNetConfig", "FNetModel", hidden_size=32, num_hidden_layers=2, intermediate_size=48,
                       vocab_size=99, max_position_embeddings=64),
    "more_funnel": _text("FunnelConfig", "FunnelModel", vocab_size=99, block_sizes=[1, 1], d_model=32, n_head=4,
                         d_head=8, d_inner=48, num_decoder_layers=1),
    "more_nystromformer": _text("NystromformerConfig", "NystromformerModel", **_PLACES),
    "more_roformer": _text("RoFormerConfig", "RoFormerModel", **_PLACES, embedding_size=32),
    "more_rembert": _text("RemBertConfig", "RemBertModel", **_PLACES, input_embedding_size=16),
    "more_longformer": _text("LongformerConfig", "LongformerModel", **_PLACES, attention_window=[4, 4],
                             inputs=tokens(shapes=((2, 8), (3, 12), (1, 4)))),
    "more_xlm_roberta": _text("XLMRobertaConfig", "XLMRobertaForTokenClassification", **_PLACES),
    "more_modernbert": _text("ModernBertConfig", "ModernBertModel", **_PLACES, pad_token_id=0),
    "more_esm": _text("EsmConfig", "EsmModel", **_PLACES, pad_token_id=0, position_embedding_type="rotary"),
    "more_openai_gpt": _text("OpenAIGPTConfig", "OpenAIGPTModel", **_GPT),
    "more_xlm": _text("XLMConfig", "XLMModel", emb_dim=32, n_layers=2, n_heads=4, vocab_size=99, n_words=99,
                      max_position_embeddings=64),
    "more_codegen": _text("CodeGenConfig", "CodeGenForCausalLM", **_GPT, rotary_dim=4),
    "more_gpt_bigcode": _text("GPTBigCodeConfig", "GPTBigCodeForCausalLM", **_GPT),
    "more_mpt": _text("MptConfig", "MptForCausalLM", d_model=32, n_heads=4, n_layers=2, vocab_size=99, max_seq_len=64),
    "more_mixtral": _text("MixtralConfig", "MixtralForCausalLM", **_LLAMA, num_local_experts=4),
    "more_qwen2_moe": _text("Qwen2MoeConfig", "Qwen2MoeForCausalLM", **_LLAMA, num_experts=4, num_experts_per_tok=2,
                            moe_intermediate_size=16, shared_expert_intermediate_size=24),
    "more_qwen3_moe": _text("Qwen3MoeConfig", "Qwen3MoeForCausalLM", **_LLAMA, num_experts=4, num_experts_per_tok=2,
                            moe_intermediate_size=16, head_dim=8),
    "more_olmo": _text("OlmoConfig", "OlmoForCausalLM", **_LLAMA),
    "more_cohere": _text("CohereConfig", "CohereForCausalLM", **_LLAMA),
    "more_starcoder2": _text("Starcoder2Config", "Starcoder2ForCausalLM", **_LLAMA),
    "more_granite": _text("GraniteConfig", "GraniteForCausalLM", **_LLAMA),
    "more_nemotron": _text("NemotronConfig", "NemotronForCausalLM", **_LLAMA),
    "more_gemma3": _text("Gemma3TextConfig", "Gemma3ForCausalLM", **_LLAMA, head_dim=8, sliding_window=4),
    "more_smollm3": _text("SmolLM3Config", "SmolLM3ForCausalLM", **_LLAMA, pad_token_id=0),
    "more_glm4": _text("Glm4Config", "Glm4ForCausalLM", **_LLAMA, head_dim=8, pad_token_id=0),
    "more_deepseek_v3": _text("DeepseekV3Config", "DeepseekV3ForCausalLM", **_PLACES, num_key_value_heads=4,
                              n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2, kv_lora_rank=8,
                              q_lora_rank=16, qk_rope_head_dim=4, v_head_dim=8, qk_nope_head_dim=8,
                              moe_intermediate_size=16, first_k_dense_replace=1),
    "more_persimmon": _text("PersimmonConfig", "PersimmonForCausalLM", **_PLACES),
    "more_biogpt": _text("BioGptConfig", "BioGptForCausalLM", **_PLACES),
    "more_xglm": _text("XGLMConfig", "XGLMForCausalLM", d_model=32, num_layers=2, attention_heads=4, ffn_dim=48,
                       vocab_size=99, max_position_embeddings=64),
    "more_rwkv": _text("RwkvConfig", "RwkvForCausalLM", hidden_size=16, num_hidden_layers=2, vocab_size=99,
                       context_length=32, inputs=tokens(shapes=((2, 5), (3, 5), (1, 5)))),
    "more_mamba2": _text("Mamba2Config", "Mamba2ForCausalLM", hidden_size=16, state_size=4, num_hidden_layers=1,
                         vocab_size=99, num_heads=4, head_dim=8, n_groups=1, chunk_size=8),
    "more_recurrent_gemma": _text("RecurrentGemmaConfig", "RecurrentGemmaForCausalLM", **_SMALL, num_key_value_heads=1,
                                  lru_width=32, attention_window_size=8),
    "more_deit": _pixels("DeiTConfig", "DeiTForImageClassification", **_VIT),
    "more_beit": _pixels("BeitConfig", "BeitForImageClassification", **_VIT, use_relative_position_bias=True),
    "more_swin": _pixels("SwinConfig", "SwinForImageClassification", image_size=32, patch_size=4, embed_dim=16,
                         depths=[2, 2], num_heads=[2, 4], window_size=4),
    "more_swinv2": _pixels("Swinv2Config", "Swinv2ForImageClassification", image_size=32, patch_size=4, embed_dim=16,
                           depths=[2, 2], num_heads=[2, 4], window_size=4),
    "more_mobilevit": _pixels("MobileViTConfig", "MobileViTForImageClassification", 64, image_size=64,
                              hidden_sizes=[16, 20, 24], neck_hidden_sizes=[8, 8, 16, 16, 16, 20, 32]),
    "more_levit": _pixels("LevitConfig", "LevitForImageClassification", 64, image_size=64,
                          hidden_sizes=[16, 32, 48], num_attention_heads=[1, 2, 3], depths=[1, 1, 1],
                          key_dim=[8, 8, 8]),
    "more_pvt": _pixels("PvtConfig", "PvtForImageClassification", 64, image_size=64, hidden_sizes=[8, 16, 24, 32],
                        depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4]),
    "more_dpt": _pixels("DPTConfig", "DPTForDepthEstimation", **{**_VIT, "num_hidden_layers": 4},
                        backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=8),
    "more_yolos": _pixels("YolosConfig", "YolosForObjectDetection", **{**_VIT, "image_size": [32, 32]},
                          num_detection_tokens=5),
    "more_siglip_vision": _pixels("SiglipVisionConfig", "SiglipVisionModel", **_VIT),
    "more_vit_mae_like_ijepa": _pixels("IJepaConfig", "IJepaForImageClassification", **_VIT),
    "more_focalnet": _pixels("FocalNetConfig", "FocalNetForImageClassification", image_size=32, patch_size=4,
                             embed_dim=16, depths=[1, 1], hidden_sizes=[16, 32], focal_levels=[2, 2],
                             focal_windows=[3, 3]),
    "more_hiera": _pixels("HieraConfig", "HieraForImageClassification", 64, image_size=[64, 64], embed_dim=16,
                          depths=[1, 1, 1], num_heads=[1, 2, 4], num_query_pool=2),
    "more_efficientformer_like_poolformer": _pixels("PoolFormerConfig", "PoolFormerForImageClassification", 64,
                                                    hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]),
    "more_detr": _pixels("DetrConfig", "DetrForObjectDetection", 64, use_timm_backbone=False,
                         use_pretrained_backbone=False, backbone=None, backbone_config=None, d_model=32,
                         encoder_layers=1, decoder_layers=1, encoder_ffn_dim=48, decoder_ffn_dim=48,
                         encoder_attention_heads=4, decoder_attention_heads=4, num_queries=7),
    "more_sam_vision": _pixels("SamVisionConfig", "SamVisionModel", 64, **{**_VIT, "image_size": 64},
                               output_channels=16, window_size=4, global_attn_indexes=[1], mlp_dim=48),
    "more_hubert": _sound("HubertConfig", "HubertModel"),
    "more_wavlm": _sound("WavLMConfig", "WavLMModel"),
    "more_sew": _sound("SEWConfig", "SEWModel", squeeze_factor=2),
    "more_unispeech": _sound("UniSpeechConfig", "UniSpeechModel"),
    "more_data2vec_audio": _sound("Data2VecAudioConfig", "Data2VecAudioModel"),
    "more_ast": _series("ASTConfig", "ASTModel", 24, 16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=48, patch_size=8, max_length=24, num_mel_bins=16, frequency_stride=4,
                        time_stride=4),
    "more_whisper_encoder": _series("WhisperConfig", "WhisperForAudioClassification", 16, 40, d_model=32,
                                    encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=48, num_mel_bins=16,
                                    max_source_positions=20, decoder_layers=1, decoder_attention_heads=4,
                                    decoder_ffn_dim=48),
    "more_patchtst": _series("PatchTSTConfig", "PatchTSTForPrediction", 32, 3, num_input_channels=3, context_length=32,
                             patch_length=4, patch_stride=4, d_model=16, num_attention_heads=2, ffn_dim=24,
                             prediction_length=6, num_hidden_layers=2),
    "more_patchtsmixer": _series("PatchTSMixerConfig", "PatchTSMixerForPrediction", 32, 3, num_input_channels=3,
                                 context_length=32, patch_length=4, patch_stride=4, d_model=16, prediction_length=6,
                                 num_layers=2),
    **{
        f"more_timm_{name}": _timm(name)
        for name in (
            "nf_resnet26", "eca_nfnet_l0", "convmixer_768_32", "ghostnetv2_100", "mobilenetv4_conv_small",
            "repvit_m0_9", "hgnet_tiny", "mambaout_femto", "starnet_s1", "fastvit_t8", "mobilevitv2_050",
            "efficientvit_b0", "hrnet_w18_small", "dpn48b", "selecsls42", "tresnet_m", "gernet_s",
            "inception_next_tiny", "pvt_v2_b0", "xception41", "rexnet_100", "lambda_resnet26t",
            "resnetv2_50", "sequencer2d_s", "tf_efficientnet_b0", "vgg11",
        )
    },
    **{
        f"more_timm_{name}": _timm(name, side, img_size=side)
        for name, side in {
            "beit_base_patch16_224": 64, "eva02_tiny_patch14_224": 56, "pit_ti_224": 64, "tnt_s_legacy_patch16_224": 64,
            "xcit_nano_12_p16_224": 64, "convit_tiny": 64, "coatnet_nano_rw_224": 64, "twins_svt_small": 64,
            "swinv2_cr_tiny_ns_224": 224,
            "volo_d1_224": 64, "nest_tiny": 224, "vit_relpos_small_patch16_224": 64, "samvit_base_patch16_224": 64,
            "tiny_vit_5m_224": 224, "gcvit_xxtiny": 224, "hiera_tiny_224": 224,
        }.items()
    },
    "more_torchvision_s3d": _video("s3d"),
    "more_torchvision_r2plus1d": _video("r2plus1d_18"),
    "more_torchvision_regnet_x": _vision("regnet_x_400mf"),
    "more_torchvision_mnasnet0_5": _vision("mnasnet0_5"),
}  # fmt: skip
