//! Adapters on a model whose own weights are trained too: their gradients and optimizer state are what adapters were to save.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::Category,
    recording::Unfrozen,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::AllTrainable, find };

/// So many times as large as the adapters: a layer or two may be trained on purpose.
const TIMES: u64 = 2;

fn find(case: &Case<'_>) -> Vec<Finding> {
    if !case.is_first_device() {
        return Vec::new();
    }
    let mut models = case.run.recording.notes.weights.iter();
    let found = models.find_map(|model| match &model.unfrozen {
        Unfrozen { tensors, bytes, first: Some(first) } if model.adapters.0 * TIMES < bytes.0 => {
            Some((*tensors, *bytes, first, model.adapters))
        }
        _ => None,
    });
    let Some((tensors, weights, first, adapters)) = found else { return Vec::new() };
    // Of gradients and optimizer state they have what they have of the weights that are trained.
    let sums = case.by_category();
    let sum = |it: Category| sums.get(&it).map_or(0, |it| it.0.0);
    let trained = sum(Category::Gradients) + sum(Category::OptimizerState);
    let share =
        |it: u64| u128::from(it) * u128::from(weights.0) / u128::from((weights + adapters).0);
    let bytes = Bytes(u64::try_from(share(trained)).unwrap_or(trained));
    if !case.matters(bytes, 5, Bytes::mib(16)) {
        return Vec::new();
    }
    let title = format!(
        "the weights below the adapters are trained too: {tensors} tensors of {weights}, as `{first}`; their gradients and optimizer state need {bytes} at the peak"
    );
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.count = tensors;
    res.remedy = "freeze them: no line may set `requires_grad` of all parameters after `get_peft_model`; `model.print_trainable_parameters()` shows the share, and the optimizer gets those with `requires_grad` only".to_owned();
    vec![res]
}
