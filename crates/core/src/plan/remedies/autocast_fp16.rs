//! The forward pass runs in mixed precision with float16, the loss is scaled.

use super::{Kind, Numbers, Offer, autocast::under_autocast};
use crate::plan::{
    Remedy,
    change::{Edit, Place, Site},
};

pub(super) const KIND: Kind = Kind {
    id: "autocast-fp16",
    what: "the forward pass runs in mixed precision with float16, the loss is scaled",
    numbers: Numbers::Precision,
    offer: Offer::Usual,
    change,
    page: include_str!("autocast_fp16.md"),
};

fn change(_: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let (optimizer, step) = (place.sites.only("optimizer")?, place.sites.only("step")?);
    let backward = place.sites.only("backward")?;
    // The scaler is made beside the optimizer and has to be seen where it is used.
    let is_seen = |it: &Site| {
        it.file == optimizer.file && (optimizer.function == 0 || it.function == optimizer.function)
    };
    let (call, stepped) = (backward.call.as_ref()?, step.call.as_ref()?);
    let (loss, stepping) = (call.owner?, stepped.owner?);
    if !is_seen(step)
        || !is_seen(backward)
        || !stepped.arguments.is_empty()
        || !call.arguments.is_empty()
    {
        return None;
    }
    let file = &step.file;
    let name = place.text(file, stepping)?;
    let mut res = under_autocast(place, "float16")?;
    res.push(Edit::after(optimizer, "scaler = torch.amp.GradScaler(\"cuda\")"));
    res.push(Edit::insert(file, loss.first, "scaler.scale("));
    res.push(Edit::insert(file, loss.end, ")"));
    for clip in place.sites.all("clip").filter(|it| is_seen(it)) {
        res.push(Edit::before(clip, &format!("scaler.unscale_({name})")));
    }
    res.push(Edit::instead(file, stepped.span, &format!("scaler.step({name})")));
    res.push(Edit::after(step, "scaler.update()"));
    Some(res)
}
